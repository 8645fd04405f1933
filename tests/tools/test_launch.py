"""The launchers write what Slurm and Kubernetes accept, and a local launch recovers from kills."""
import os
import re
import signal
import subprocess
import threading

import kubernetes_validate
import pytest
import yaml

from lingpipe.cluster import server
from lingpipe.tools import dry_run, launch_kubernetes, launch_local, launch_slurm, trainer_flags
from lingpipe.tools.kubernetes_pod import WorkerPod
from tests.support.forks import Fork, environment, run_module
from tests.support.held_experiment import let_go
from tests.support.local_workers import TINY, wait_until

FLAGS = ['--model=image.digits.Dense', '--set', "task.x='a b'", '--logdir=/training/$digits']
OF_WORKERS = ['--model=image.digits.Dense', "--set=task.x='a b'"]


def objects(num_workers=4, **kwargs):
    """Returns the objects of the manifest by kind."""
    made = list(yaml.safe_load_all(
        launch_kubernetes.manifest(num_workers, 'image:1', 'training', FLAGS, **kwargs)))
    return {one['kind']: one for one in made}


def test_kubernetes_objects_are_those_of_its_schema():
    found = objects(pod=WorkerPod('8', '32Gi', 2, node_selector={'disk': 'ssd'},
                                  tolerations=('nvidia.com/gpu',)))
    assert list(found) == ['Service', 'NetworkPolicy', 'StatefulSet', 'Job']
    for one in found.values():
        kubernetes_validate.validate(one, '1.31', strict=True)
    container = found['StatefulSet']['spec']['template']['spec']['containers'][0]
    assert container['resources']['limits'] == {'cpu': '8', 'memory': '32Gi', 'nvidia.com/gpu': '2'}


def test_kubernetes_places_workers_on_nodes_with_their_tpus():
    found = objects(pod=WorkerPod(tpus=4, tpu_type='tpu-v5-lite-podslice', tpu_topology='4x4',
                                  node_selector={'pool': 'mine'}))
    kubernetes_validate.validate(found['StatefulSet'], '1.31', strict=True)
    spec = found['StatefulSet']['spec']['template']['spec']
    assert spec['containers'][0]['resources']['limits'] == {'google.com/tpu': '4'}
    assert spec['nodeSelector'] == {
        'cloud.google.com/gke-tpu-accelerator': 'tpu-v5-lite-podslice',
        'cloud.google.com/gke-tpu-topology': '4x4', 'pool': 'mine'}


def test_kubernetes_workers_are_all_hosts_of_a_slice_or_have_one_each():
    with pytest.raises(ValueError, match='--workers=4 with --tpus=4 are 16 chips, and '
                                         '--tpu_topology=2x4 has 8; .* use --workers=2, or'):
        objects(pod=WorkerPod(tpus=4, tpu_type='v5', tpu_topology='2x4'))
    with pytest.raises(ValueError, match='--tpu_topology=2x2x2 has 8; .* use --tpus that divide 8'):
        objects(pod=WorkerPod(tpus=3, tpu_type='v5', tpu_topology='2x2x2'))
    assert objects(pod=WorkerPod(tpus=4, tpu_type='v5', tpu_topology='2x2'))


def test_a_logdir_outside_of_the_claim_is_refused(capsys):
    own = ['--workers=1', '--image=x', '--claim=data', '--', '--model=image.digits.Dense']
    for logdir in ('/training/digits', '/data/../tmp', 'data/digits', '/data2'):
        with pytest.raises(SystemExit, match=re.escape(
                f'--logdir={logdir} is not on the claim, which is mounted at /data, and would be '
                'lost with its pod; write --logdir=/data/NAME.')):
            launch_kubernetes.main([*own, f'--logdir={logdir}'])
    for logdir in ('/data/digits', 'gs://bucket/digits'):
        launch_kubernetes.main([*own, f'--logdir={logdir}'])
        assert f'--logdir={logdir}' in capsys.readouterr().out


def test_kubernetes_workers_write_checkpoints_if_they_share_the_claim():
    found = objects(shares_claim=True)
    kubernetes_validate.validate(found['StatefulSet'], '1.31', strict=True)
    worker, trainer = (found[kind]['spec']['template']['spec'] for kind in ('StatefulSet', 'Job'))
    assert worker['volumes'] == trainer['volumes']
    assert worker['containers'][0]['volumeMounts'] == trainer['containers'][0]['volumeMounts']


def test_kubernetes_lets_workers_go_on_for_as_long_as_the_trainer_may_save():
    worker, trainer = (one['spec']['template']['spec']['terminationGracePeriodSeconds']
                       for kind, one in objects().items() if kind in ('StatefulSet', 'Job'))
    assert worker == trainer == server.LAST_S


@pytest.mark.parametrize('values, error', [
    ({'memory': '32Gb'},
     "--memory='32Gb' is no amount above 0; write --cpu=8 or --cpu=500m, --memory=32Gi"),
    ({'cpu': '0.0'}, "--cpu='0.0' is no amount above 0"),
    ({'gpu_resource': 'gpu'}, "--gpu_resource='gpu' is no name of a resource; write it as"),
    ({'tpus': 4}, "--tpus=4 with --tpu_type=''; TPUs need --tpus, --tpu_type and --tpu_topology"),
    ({'tpu_type': 'v5'}, "--tpus=0 with --tpu_type='v5'; TPUs need"),
    ({'tpus': 4, 'tpu_type': 'v5', 'tpu_topology': '4'}, "--tpu_topology='4' is no topology"),
    ({'tpus': 4, 'gpus': 4}, '--gpus=4 and --tpus=4 are of one pod, and no node has both'),
    ({'node_selector': {'a b': 'c'}}, "--node_selector='a b=c' is no label of a node"),
    ({'tolerations': ('a b',)}, "--toleration='a b' is no key of a taint"),
])
def test_kubernetes_pods_ask_for_what_it_takes(values, error):
    with pytest.raises(ValueError, match='^' + re.escape(error)):
        WorkerPod(**values)


def test_restarts_of_trainers_are_bounded():
    assert objects(max_restarts=3)['Job']['spec']['backoffLimit'] == 3
    script = launch_slurm.script(1, FLAGS, max_restarts=3, requeue=False)
    assert '[ "$restarts" = 3 ]' in script and '#SBATCH --no-requeue\n' in script


@pytest.mark.slow
def test_a_dry_run_of_slurm_trains_here_with_the_commands_of_the_job(capfd):
    with pytest.raises(SystemExit) as ended:
        launch_slurm.main(['--nodes=2', '--gpu_type=a100', '--gpus_per_node=1', '--dry_run', '--',
                           TINY, '--logdir=/not/here', '--set=pipeline.num_cells=2'])
    assert ended.value.code == 0
    assert 'done after 2 steps' in capfd.readouterr().out


@pytest.mark.parametrize('worker_devices, num_accelerators, cpus', [
    ('', 0, 'cpu:1'), ('', 4, 'cpu:4'), ('gpu', 4, 'cpu:4'), ('gpu:2', 4, 'cpu:1'),
    ('gpu:0-1', 4, 'cpu:2'), ('gpu:0-1', 0, 'cpu:2'), ('cpu:3', 4, 'cpu:3')])
def test_a_dry_run_has_a_cpu_for_each_accelerator_that_a_worker_uses(
        worker_devices, num_accelerators, cpus):
    """One that asked for GPUs by --sbatch=--gres=gpu:2 and named gpu:0-1 had one CPU a worker."""
    assert dry_run.devices(worker_devices, num_accelerators) == cpus


@pytest.mark.parametrize('tool, own', [
    (launch_slurm, ['--nodes=9']), (launch_kubernetes, ['--workers=9', '--image=x', '--claim=y'])])
def test_a_dry_run_needs_few_workers(tool, own):
    with pytest.raises(SystemExit, match='--dry_run starts 9 workers on this machine, which may'):
        tool.main([*own, '--dry_run', *TRAINER])


def test_kubernetes_selectors_choose_the_pods_that_they_are_for():
    found = objects(name='mine', port=4000)
    worker = found['StatefulSet']['spec']['template']
    assert (found['StatefulSet']['spec']['selector']['matchLabels'] == worker['metadata']['labels']
            == found['Service']['spec']['selector'])
    assert (found['StatefulSet']['spec']['serviceName'] == found['Service']['metadata']['name']
            == 'mine')
    policy = found['NetworkPolicy']['spec']
    for pods in (worker, found['Job']['spec']['template']):
        assert policy['podSelector']['matchLabels'].items() <= pods['metadata']['labels'].items()
    assert [one['port'] for one in policy['ingress'][0]['ports']] == [4000, 4001]


def test_kubernetes_commands_are_the_trainers():
    found = objects(3)
    worker = found['StatefulSet']['spec']['template']['spec']['containers'][0]['command']
    assert worker == ['python', '-m', 'lingpipe.trainer', '--mode=worker', '--address=0.0.0.0:2222',
                      *OF_WORKERS]
    trainer = found['Job']['spec']['template']['spec']['containers'][0]['command']
    devices = '--devices=lingpipe-0.lingpipe:2222,lingpipe-1.lingpipe:2222,lingpipe-2.lingpipe:2222'
    assert trainer == ['python', '-m', 'lingpipe.trainer', devices,
                       '--address=$(POD_IP):2223', '--set=train.worker_timeout_s=86400', *FLAGS[:3],
                       '--logdir=/training/$$digits']


def test_slurm_script_is_bash_and_passes_flags_through_its_quotes(tmp_path):
    script = tmp_path / 'job.sh'
    launch_slurm.main(['--nodes=2', '--gpus_per_node=4', f'--output={script}',
                       '--sbatch=--partition=long', '--python=echo', '--', *FLAGS])
    text = script.read_text()
    options = [line.removeprefix('#SBATCH ') for line in text.splitlines()
               if line.startswith('#SBATCH')]
    assert {'--nodes=2', '--gpus-per-node=4', '--partition=long', '--signal=B:TERM@120',
            '--requeue'} <= set(options)
    assert subprocess.run(['bash', '-n', script], capture_output=True, text=True).stderr == ''

    for name, body in {'scontrol': 'echo node1; echo node2',
                       'srun': 'while [ "$1" != bash ]; do shift; done; timeout 0.5 "$@"'}.items():
        (tmp_path / name).write_text(f'#!/bin/bash\n{body}\n')
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, 'PATH': f'{tmp_path}:{os.environ["PATH"]}',
                   'SLURM_JOB_NODELIST': 'node[1-2]', 'SLURMD_NODENAME': 'node1',
                   'SLURM_JOB_ID': '1'}
    done = subprocess.run(['bash', script], capture_output=True, text=True, timeout=30,
                          env=environment)
    assert done.returncode == 0, done.stderr

    lines = set(done.stdout.splitlines())
    flags = "--model=image.digits.Dense --set task.x='a b'"
    assert (f'-m lingpipe.trainer --devices=node1:2222,node2:2222 --address=node1:2223 {flags} '
            '--logdir=/training/$digits' in lines)


def test_slurm_workers_get_their_address_and_flags():
    inner = (launch_slurm.script(1, FLAGS, python='echo', port=5000)
             .split("bash -c '")[1].split("done' &")[0])
    outer = f"port=5000; export SLURMD_NODENAME=n; bash -c '{inner.replace('sleep 1', 'exit')}done'"
    made = subprocess.run(['bash', '-c', outer], capture_output=True, text=True, timeout=30)
    assert made.stdout == (f"-m lingpipe.trainer --mode=worker --address=n:5000 "
                           f"{' '.join(OF_WORKERS)}\n"), made.stderr


def test_slurm_links_every_node_to_all_workers_and_the_trainer(tmp_path):
    # `echo` stands for Python; srun runs the command for each node in turn.
    programs = {'scontrol': 'echo node1; echo node2',
                'srun': 'while [ "$1" != bash ]; do shift; done\nfor node in node1 node2; do\n'
                        'SLURMD_NODENAME=$node timeout 0.5 "$@"\ndone'}
    for name, body in programs.items():
        (tmp_path / name).write_text(f'#!/bin/bash\n{body}\n')
        (tmp_path / name).chmod(0o755)
    text = launch_slurm.script(2, FLAGS, python='echo', links=f'{tmp_path}/links')
    text = text.replace('exit "$code"', 'wait "$srun_id"; exit "$code"').replace(
        'kill "$srun_id"', 'true')
    done = subprocess.run(
        ['bash', '-c', text], capture_output=True, text=True, timeout=30,
        env={**os.environ, 'PATH': f'{tmp_path}:{os.environ["PATH"]}', 'SLURM_JOB_ID': '7',
             'SLURM_JOB_NODELIST': 'node[1-2]', 'SLURMD_NODENAME': 'node1'})
    lines = {line.partition(' --model')[0] for line in done.stdout.splitlines()}
    assert lines == {
        f'-m lingpipe.tools.secure_links --hosts=node1,node2 --output={tmp_path}/links/7-0 '
        '--port=2222',
        f'-m lingpipe.tools.secure_links --run={tmp_path}/links/7-0/node1',
        f'-m lingpipe.tools.secure_links --run={tmp_path}/links/7-0/node2',
        '-m lingpipe.trainer --mode=worker --address=127.0.0.1:2222',
        '-m lingpipe.trainer --mode=worker --address=127.0.0.1:2223',
        '-m lingpipe.trainer --devices=127.0.0.1:2222,127.0.0.1:2223 --address=127.0.0.1:2224',
    }, done.stderr


@pytest.mark.parametrize('moment', ['before the trainer', 'between two trainers'])
def test_slurm_forgets_no_signal_and_leaves_no_keys(tmp_path, moment):
    """Without a trainer that it could go to, a SIGTERM left no requeue, or was lost."""
    is_before = moment == 'before the trainer'
    kill = f'kill -TERM $(cat {tmp_path}/script)'
    programs = {
        'scontrol': f'echo "$@" >> {tmp_path}/asked; if [ $1 = show ]; then '
                    f'{kill if is_before else ":"}; echo node1; echo node2; fi',
        'srun': 'exec sleep 60',
        'python': 'case "$*" in *--output=*) mkdir -p links/1-0; exit ;; esac; '
                  'echo started >> trainers; kill -KILL $$',
        'sleep': f'if [ "$1" = 1 ]; then {kill}; fi'}
    for name, body in programs.items():
        (tmp_path / name).write_text(f'#!/bin/bash\n{body}\n')
        (tmp_path / name).chmod(0o755)
    text = launch_slurm.script(2, FLAGS, python=f'{tmp_path}/python', links=f'{tmp_path}/links')
    done = subprocess.run(
        ['bash', '-c', f'echo $$ > script\n{text}'], capture_output=True, text=True, timeout=30,
        cwd=tmp_path,
        env={**os.environ, 'PATH': f'{tmp_path}:{os.environ["PATH"]}', 'SLURM_JOB_ID': '1',
             'SLURM_JOB_NODELIST': 'node[1-2]', 'SLURMD_NODENAME': 'node1'})
    assert done.returncode == 143, done.stderr
    assert 'requeue 1\n' in (tmp_path / 'asked').read_text()
    assert not (tmp_path / 'links' / '1-0').exists()
    trainers = tmp_path / 'trainers'
    assert (trainers.read_text() if trainers.exists() else '') == ('' if is_before else 'started\n')


@pytest.mark.parametrize(('nodes', 'folder', 'error'), [
    (1, '/shared', '--secure_links are between nodes, and --nodes=1 is one'),
    (2, 'shared', "--secure_links='shared' is no folder that all nodes see")])
def test_slurm_links_need_two_nodes_and_a_folder(nodes, folder, error):
    with pytest.raises(ValueError, match=error):
        launch_slurm.script(nodes, FLAGS, links=folder)


TRAINER = ['--', '--model=x', '--logdir=/y/z']


@pytest.mark.parametrize('flags, error', [
    ([], "the trainer's flags are missing; write them after --, as -- --model=NAME --logdir=DIR"),
    ([*TRAINER, '--devices=cpu:1'],
     '--devices after -- is given to the trainer by this tool; leave it out'),
    ([*TRAINER, '-devices', 'cpu:1'],
     '--devices after -- is given to the trainer by this tool; leave it out'),
    ([*TRAINER, '--address=a:1'],
     '--address after -- is given to the trainer by this tool; leave it out'),
    ([*TRAINER, '--mode=worker'], '--mode=worker after -- is no job for workers; use one of '
                                  'train_and_eval, train, eval, decode'),
    ([*TRAINER, '--stepps=3'], "the trainer's flags after --: Unknown command line flag 'stepps'"),
    (['--', '--model=x'], '--logdir after -- is missing; write -- --model=NAME --logdir=DIR'),
    (['--worker_devices=cpu:0', *TRAINER],
     '--worker_devices=cpu:0 of a worker; write the devices that it has: cpu:4'),
])
@pytest.mark.parametrize('tool, own',
                         [(launch_slurm, []), (launch_kubernetes, ['--image=x', '--claim=y'])])
def test_launchers_refuse_flags_that_the_job_would_fail_with(tool, own, flags, error):
    with pytest.raises(SystemExit,
                       match='^' + re.escape(f'{tool.__name__.split(".")[-1]}: {error}')):
        tool.main([*own, *flags])


@pytest.mark.parametrize('name', ['on', 'null', 'true', 'no'])
def test_kubernetes_names_that_are_words_of_yaml_stay_names(name):
    """A job named `on` had the label true, which is no text."""
    for links_image in ('', 'stunnel:5'):
        for one in objects(name=name, links_image=links_image).values():
            kubernetes_validate.validate(one, '1.31', strict=True)
            assert one['metadata']['labels'] == {'app': name}


@pytest.mark.parametrize('values, error', [
    ({'name': 'Bad Name'},
     "--name='Bad Name' is no name of a Service and a StatefulSet; use up to 52 small letters"),
    ({'name': 'a\n  labels: {b: c}'}, "--name='a\\n  labels: {b: c}' is no name of a Service"),
    ({'name': '1a'}, "--name='1a' is no name of a Service"),
    ({'name': 'a' * 53}, f"--name='{'a' * 53}' is no name of a Service"),
    ({'image': ''}, "--image='' is no container image; write registry/name:tag"),
    ({'image': 'Registry/Name'}, "--image='Registry/Name' is no container image"),
    ({'image': 'name:tag:tag'}, "--image='name:tag:tag' is no container image"),
    ({'claim': 'usr'}, '--claim=usr would be mounted at /usr, in place of what the image has'),
    ({'claim': 'a/b'}, "--claim='a/b' is no name of a PersistentVolumeClaim"),
])
def test_kubernetes_names_are_those_that_it_takes(values, error):
    with pytest.raises(ValueError, match='^' + re.escape(error)):
        launch_kubernetes.manifest(1, **{'image': 'a', 'claim': 'b', 'flags': FLAGS, **values})


def test_kubernetes_workers_are_as_many_as_the_command_of_the_trainer_can_name():
    """100,000 workers were written down, and no trainer could have started."""
    made = objects(4000)
    devices = made['Job']['spec']['template']['spec']['containers'][0]['command'][3]
    assert subprocess.run(['true', devices]).returncode == 0
    with pytest.raises(ValueError, match='the addresses of all workers are 278899 bytes in the '
                                         "trainer's command, and Linux takes 131071 in one flag; "
                                         'use fewer --workers, or a shorter --name'):
        objects(10_000)


@pytest.mark.parametrize('image', [
    'lingpipe', 'lingpipe:1.0_rc-2', 'registry.example.com:5000/team/lingpipe:1',
    'ghcr.io/a/b-c__d/e', f'localhost/lingpipe@sha256:{"0a" * 32}',
    f'lingpipe:1@sha256:{"0a" * 32}'])
def test_every_reference_of_an_image_is_taken(image):
    assert image in launch_kubernetes.manifest(1, image, 'claim.of-1', FLAGS, name='a' * 52,
                                               pod=WorkerPod('0.5', '1Ti'))


@pytest.mark.parametrize('values, error', [
    ({'name': 'a b'}, "--name='a b' is no name of a job and of its log; use up to 64 letters"),
    ({'name': 'a\n#SBATCH --uid=0'}, "--name='a\\n#SBATCH --uid=0' is no name of a job"),
    ({'time': '1:00:00\n#SBATCH --uid=0'},
     "--time='1:00:00\\n#SBATCH --uid=0' is no limit of sbatch; write minutes"),
    ({'time': 'tomorrow'}, "--time='tomorrow' is no limit of sbatch"),
    ({'time': '1:2:3:4'}, "--time='1:2:3:4' is no limit of sbatch"),
    ({'extra': ('--a\nrm',)}, "--sbatch='--a\\nrm' is no option of sbatch on one line"),
    ({'extra': ('--nodes=7',)}, '--sbatch=--nodes=7 sets what the script sets itself; '
                                'give --nodes in its place.'),
    ({'extra': ('-N7',)}, '--sbatch=-N7 sets what the script sets itself; give --nodes'),
    ({'extra': ('--ntasks-per-node=3',)},
     '--sbatch=--ntasks-per-node=3 sets what the script sets itself; leave it out.'),
    ({'gpu_type': 'a100:4'}, "--gpu_type='a100:4' is no kind of GPU"),
    ({'gpu_type': 'a100'}, '--gpu_type=a100 without --gpus_per_node asks for no GPU'),
])
def test_slurm_options_stay_on_their_lines(values, error):
    with pytest.raises(ValueError, match='^' + re.escape(error)):
        launch_slurm.script(1, FLAGS, **values)


@pytest.mark.parametrize('time', ['0', '90', '90:30', '24:00:00', '2-12', '2-12:30', '2-12:30:59'])
def test_every_form_of_a_time_limit_is_taken(time):
    assert f'#SBATCH --time={time}\n' in launch_slurm.script(1, FLAGS, time=time)


def test_slurm_quotes_the_path_of_python_for_trainer_and_workers(tmp_path):
    python = tmp_path / "it's my" / 'python'
    python.parent.mkdir()
    python.write_text('#!/bin/bash\necho "$@"\n')
    python.chmod(0o755)
    text = launch_slurm.script(1, FLAGS, python=str(python))
    inner = text.split("bash -c '")[1].split("done' &")[0].replace('sleep 1', 'exit')
    trainer = next(line for line in text.splitlines() if '--devices=' in line).removesuffix(' &')
    for command in (f"port=1; bash -c '{inner}done'", f'port=1; workers=w; {trainer}'):
        done = subprocess.run(['bash', '-c', command], capture_output=True, text=True, timeout=30)
        assert done.stdout.startswith('-m lingpipe.trainer'), done.stderr


@pytest.mark.parametrize('flags', [
    ['--model=a.B', '--set=x=1', '--set=y=2', '--logdir=c'],
    ['-model', 'a.B', '-set', 'x=1', '-set=y=2', '-logdir=c'],
    ['--logdir=c', '--model', 'other', '--set', 'x=1', '--set=y=2', '--model=a.B']])
def test_workers_get_model_and_set_however_they_are_written(flags):
    """-model and -set once did not reach the workers.

    Their threads and graph optimizer were then not the experiment's.
    """
    assert trainer_flags.of_workers(flags, '') == ['--model=a.B', '--set=x=1', '--set=y=2']
    assert trainer_flags.of_workers(flags, 'cpu:2') == ['--model=a.B', '--set=x=1', '--set=y=2',
                                                        '--devices=cpu:2']


@pytest.mark.parametrize('flags, devices', [
    ([], 'A,B'), (['--devices=2*WORKERS'], '2*A,2*B'), (['--devices', '2*WORKERS'], '2*A,2*B'),
    (['-devices=cpu:1,WORKERS'], 'cpu:1,A,B')])
def test_local_launch_gives_the_addresses_however_devices_are_written(monkeypatch, flags, devices):
    """WORKERS was once replaced only after --devices=, with two hyphens and the equals sign.

    And 2*WORKERS was two cells on the first worker alone.
    """
    addresses, started = ['127.0.0.1:5', '127.0.0.1:6'], []
    monkeypatch.setattr(launch_local, 'free_addresses', lambda number: addresses[:number])
    monkeypatch.setattr(
        launch_local, 'start',
        lambda flags, *_: started.append(flags) or subprocess.Popen(['true']))
    with pytest.raises(SystemExit) as ended:
        launch_local.main(['--workers=2', *TRAINER, *flags])
    assert ended.value.code == 0
    of_trainer, = (command for command in started if '--mode=worker' not in command)
    assert trainer_flags.parsed(of_trainer).devices == devices.replace(
        'A', addresses[0]).replace('B', addresses[1])


def test_local_launch_refuses_devices_without_a_worker():
    """The workers were started, and nobody used them."""
    with pytest.raises(SystemExit, match=r'^launch_local: --devices=cpu:4 after -- names no worker '
                                         r'of --workers=2; write WORKERS for their addresses'):
        launch_local.main(['--workers=2', *TRAINER, '--devices=cpu:4'])


def test_slurm_refuses_more_nodes_than_a_run_has_cells(capsys):
    """The job waited in the queue, and bash then refused so many addresses in a command."""
    with pytest.raises(SystemExit):
        launch_slurm.main(['--nodes=5000', *TRAINER])
    assert 'launch_slurm: --nodes=5000 is above 4096; use 1 to 4096' in capsys.readouterr().err


def test_local_launch_ends_if_a_worker_cannot_start(monkeypatch):
    monkeypatch.setattr(
        launch_local, 'start',
        lambda flags, *_: subprocess.Popen(
            ['false'] if '--mode=worker' in flags else ['sleep', '60']))
    with pytest.raises(SystemExit, match=r'^launch_local: worker 127.0.0.1:\d+ cannot start \(exit '
                                         r'code 1\); it has said why\.$'):
        launch_local.main(['--workers=2', *TRAINER])


def launched(monkeypatch, folder, worker, trainer):
    """Launches shell commands, which run in a folder, as one worker and the trainer."""
    monkeypatch.setattr(
        launch_local, 'start',
        lambda flags, *_: subprocess.Popen(
            ['sh', '-c', worker if '--mode=worker' in flags else trainer], cwd=folder))
    with pytest.raises(SystemExit) as ended:
        launch_local.main(['--workers=1', *TRAINER])
    return ended.value.code


@pytest.mark.parametrize('code', [129, 130, 143])
def test_local_launch_starts_a_worker_again_that_a_signal_has_ended(monkeypatch, tmp_path, code):
    """Its exit code was taken for that of a worker that cannot start, and ended the launch."""
    worker = f'if [ -e first ]; then touch second; exec sleep 60; fi; touch first; exit {code}'
    trainer = 'while [ ! -e second ]; do sleep 0.1; done'
    assert launched(monkeypatch, tmp_path, worker, trainer) == 0


def test_local_launch_lets_the_trainer_save_before_it_gives_up(monkeypatch, tmp_path):
    worker = 'while [ ! -e ready ]; do sleep 0.1; done; exit 1'
    trainer = 'trap "touch saved; exit 143" TERM; touch ready; while :; do sleep 0.1; done'
    assert 'cannot start (exit code 1)' in launched(monkeypatch, tmp_path, worker, trainer)
    assert (tmp_path / 'saved').exists()


@pytest.mark.slow
def test_local_launch_starts_again_what_is_killed_and_ends_with_the_trainer(
        capsys, monkeypatch, tmp_path):
    started, marker = [], tmp_path / 'marker'

    def start(flags, *_):
        """Starts a trainer process in a fork, which need not import TensorFlow."""
        started.append(Fork(run_module, 'lingpipe.trainer', *flags, env=environment()))
        return started[-1]

    def kill_all():
        wait_until(marker.exists)   # Some steps are done.
        for process in started[:]:
            os.kill(process.pid, signal.SIGKILL)
        let_go(marker)

    monkeypatch.setattr(launch_local, 'start', start)
    killer = threading.Thread(target=kill_all)
    killer.start()
    with pytest.raises(SystemExit) as ended:
        launch_local.main(['--workers=1', '--', '--model=tests.support.held_experiment.Held',
                           f'--logdir={tmp_path}/log', '--mode=train', '--steps=40',
                           '--set=pipeline.num_cells=1',
                           f'--set=train_input.marker={marker}'])
    killer.join()
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert out.count('has ended (SIGKILL) and is started again') == 2
    assert 'launch_local: the trainer has ended (SIGKILL) and is started again, 1 of' in out
    assert all(process.poll() is not None for process in started)
    printed = [process.communicate()[0] for process in started]
    assert len(printed) == 4 and sum('done after 40 steps' in text for text in printed) == 1
