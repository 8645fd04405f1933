"""The flag --devices: what its text means, in which order, and one sentence for each mistake."""
import json
import os
import socket
import threading

import pytest
import tensorflow as tf

from lingpipe.cluster import addresses, client, devices, ports, server, workers


@pytest.fixture
def cluster(monkeypatch):
    """Two workers that answer: one has two GPUs, and the other has three CPUs."""
    def ask(address, task=0, timeout_s=5.):
        prefix = f'/job:worker/replica:0/task:{task}/device:'
        if address == 'a:2222':
            return workers.Worker(address, (f'{prefix}GPU:0', f'{prefix}GPU:1'),
                                  (f'{prefix}CPU:0',), 1)
        if address in ('b:2222', 'also-b:2222'):
            return workers.Worker(address, tuple(f'{prefix}CPU:{i}' for i in range(3)), (), 2)
        raise OSError('no connection')
    monkeypatch.setattr(workers, 'ask', ask)


def gpus(monkeypatch, num):
    found = [f'/physical_device:GPU:{i}' for i in range(num)]
    monkeypatch.setattr(tf.config, 'list_physical_devices',
                        lambda kind: found if kind == 'GPU' else [])


def find(text, num_cells):
    """Returns device names without the part that all names of this process share."""
    return [name.replace('/device:', '').replace('/job:worker/replica:0/task:', 'w')
            for name in devices.find(text, num_cells, 0.).names]


@pytest.mark.parametrize('text, num_cells, expected', [
    ('cpu:4', 4, ['CPU:0', 'CPU:1', 'CPU:2', 'CPU:3']),
    ('cpu:4', 2, ['CPU:0', 'CPU:1']),
    ('cpu', 1, ['CPU:0']),
    ('cpu:2-3', 2, ['CPU:2', 'CPU:3']),
    ('2*cpu:2', 4, ['CPU:0', 'CPU:0', 'CPU:1', 'CPU:1']),
    ('/device:CPU:3,/device:CPU:1', 2, ['CPU:3', 'CPU:1']),
    ('a:2222,b:2222', 5, ['w0GPU:0', 'w0GPU:1', 'w1CPU:0', 'w1CPU:1', 'w1CPU:2']),
    ('b:2222,2*a:2222', 7,
     ['w0CPU:0', 'w0CPU:1', 'w0CPU:2', 'w1GPU:0', 'w1GPU:0', 'w1GPU:1', 'w1GPU:1']),
    ('a:2222,b:2222,/job:worker/task:1/device:CPU:2,/job:worker/task:0/device:CPU:0', 2,
     ['w1CPU:2', 'w0CPU:0']),
    ('cpu:1,a:2222', 2, ['/job:localhost/replica:0/task:0CPU:0', 'w0GPU:0']),
])
def test_cells_go_to_devices_in_the_order_of_the_text(cluster, text, num_cells, expected):
    assert find(text, num_cells) == expected


@pytest.mark.parametrize('text, expected', [
    ('cpu:2', ['CPU:0', 'CPU:1']),
    ('cpu:3', ['CPU:0', 'CPU:1']),
    ('cpu:5', ['CPU:0', 'CPU:1', 'CPU:2', 'CPU:3']),
    ('2*cpu:2', ['CPU:0', 'CPU:0', 'CPU:1', 'CPU:1']),
])
def test_fewer_devices_than_cells_are_enough_if_each_is_to_have_several(text, expected):
    found = devices.find(text, 4, 0., num_devices=2)
    assert [name.replace('/device:', '') for name in found.names] == expected
    with pytest.raises(ValueError, match='4 cells need 2 devices, but --devices=cpu:1 names 1'):
        devices.find('cpu:1', 4, 0., num_devices=2)


def test_gpus_are_one_some_or_all(monkeypatch):
    gpus(monkeypatch, 4)
    assert find('gpu', 4) == ['GPU:0', 'GPU:1', 'GPU:2', 'GPU:3']
    assert find('gpu:2', 1) == ['GPU:2']
    assert find('gpu:1-2,gpu:0', 3) == ['GPU:1', 'GPU:2', 'GPU:0']
    assert find('2*gpu:3', 2) == ['GPU:3', 'GPU:3']


def test_a_plan_alone_needs_no_gpu(monkeypatch):
    gpus(monkeypatch, 0)
    assert devices.find('gpu:0-1', 2, 0., must_exist=False).names == (
        '/device:GPU:0', '/device:GPU:1')
    with pytest.raises(ValueError, match=r'--devices=gpu, but this machine has 0 GPUs'):
        devices.find('gpu', 1, 0., must_exist=False)


def test_only_as_many_cpus_are_made_as_cells_need():
    assert devices.find('cpu:8', 3, 0.).num_cpus == 3
    assert devices.find('cpu:2-3', 2, 0.).num_cpus == 4
    assert devices.find('/device:GPU:1', 1, 0.).num_cpus == 0


@pytest.mark.parametrize('text, num_cells, error', [
    ('cpu:2', 3,
     r'3 cells need 3 devices, but --devices=cpu:2 names 2 \(/device:CPU:0, /device:CPU:1\); name '
     r'more, set pipeline\.num_cells=2, or write 2\*cpu:2 for several cells on each\.'),
    ('gpu:0-3', 4, r'--devices=gpu:0-3, but this machine has 3 GPUs that TensorFlow can use; name '
                   r'those, or cpu:N; others, as gpu:0-7, can be planned for by --mode=plan or '
                   r'inspect\.'),
    ('gpu:0-1,gpu:1', 3, r'--devices names /device:GPU:1 twice, by gpu:0-1 and gpu:1; write '
                         r'2\*gpu:1 if it is to have two cells'),
    ('tpu', 1, r'--devices=tpu, but this machine has 0 TPUs that TensorFlow can use'),
    ('cpu:0', 1, r"--devices has 'cpu:0', which is no device; write cpu:N for N devices"),
    ('gpu:a', 1, r"--devices has 'gpu:a'; write gpu:2 or gpu:0-3\."),
    ('gpu:3-0', 1, r"--devices has 'gpu:3-0', which ends before it begins; write gpu:0-3\."),
    ('cpu:2,,', 2, r"--devices has ''; write a list as gpu:0-3"),
    ('*cpu:4', 1,
     r"--devices has '\*cpu:4'; write a list as gpu:0-3, cpu:4, 2\*gpu:0 or host:port"),
    ('0*cpu:4', 1, r"--devices has '0\*cpu:4'; write a list"),
    ('100000*cpu:4', 1,
     r"--devices has '100000\*cpu:4'; write a list .*, and at most 4096 cells on a device"),
    ('cpu;4:5', 1, r"--devices has 'cpu;4:5'; write cpu:4, gpu:0-3, tpu"),
    ('cpu:100000', 1, r"--devices has 'cpu:100000', and TensorFlow cannot split a CPU into so many "
                      r"devices; name at most 4096"),
    ('gpu:0-99999999999', 1, r"--devices has 'gpu:0-99999999999'; no machine has so many GPUs"),
    ('host', 1, r"--devices has 'host'; write cpu:4, gpu:0-3, tpu, a tf\.device string that begins "
                r"with /, host:port for each worker"),
    ('host:99999', 1, r"--devices has 'host:99999'"),
    ('[::1]:2222', 1, r"'\[::1\]:2222' is an IPv6 address, and lingpipe connects by IPv4; give a "
                      r'host name or an IPv4 address\.'),
    ('a:2222,a:2222', 1, r'--devices names the worker a:2222 twice; name each once, as 2\*a:2222'),
    ('b:2222,also-b:2222', 2, r'--devices names the worker b:2222 twice, by b:2222 and '
                              r'also-b:2222; name each once, as 2\*b:2222 if it is to have'),
    ('b:2222,/job:worker/task:0/device:CPU:3', 1,
     r'--devices names /job:worker/replica:0/task:0/device:CPU:3, but the devices of 1 worker are '
     r'.*CPU:2\.'),
    ('/device:GPU:0,/gpu:0', 2,
     r'--devices names /device:GPU:0 twice, by /device:GPU:0 and /gpu:0; write 2\*/gpu:0'),
    ('/job:worker', 1,
     r"--devices has '/job:worker', which names no device; write /device:GPU:0, or "),
    ('/dev/nvidia0', 1, r"--devices has '/dev/nvidia0', which names no device"),
])
def test_what_cannot_be_is_one_sentence(cluster, monkeypatch, text, num_cells, error):
    gpus(monkeypatch, 3)
    with pytest.raises(ValueError, match=error):
        devices.find(text, num_cells, 0.)


def test_worker_that_does_not_answer_is_named_after_the_time_limit(cluster):
    with pytest.raises(
            OSError,
            match=r'^worker 1, c:1, does not answer within 0\.3 s \(no connection\); start it '
                  r'there with --mode=worker --address=c:1, or correct --devices\.$'):
        devices.find('b:2222,c:1', 2, 0.3)


@pytest.mark.parametrize('text, expected', [
    ('a:2222,b:2222', 'a:2222'), ('2*a:2222,2*b:2222', '2*a:2222'), ('b:2222', ''),
    ('cpu:2,2*b:2222', 'cpu:2'), ('TF_CONFIG', 'a:2222')])
def test_a_text_without_some_workers_keeps_the_others_in_order(monkeypatch, text, expected):
    monkeypatch.setenv('TF_CONFIG', json.dumps({'cluster': {'worker': ['a:2222', 'b:2222']}}))
    assert devices.without(text, {'b:2222'}) == expected


def test_workers_that_are_missing_are_named_with_the_reason(cluster):
    assert workers.missing(['a:2222', 'c:1', 'b:2222'], 0.) == {'c:1': 'no connection'}


def test_worker_that_accepts_and_hangs_does_not_answer():
    with socket.create_server(('127.0.0.1', 0)) as one, pytest.raises(
            OSError, match='^no (answer|connection)$'):
        workers.ask(f'127.0.0.1:{one.getsockname()[1]}', timeout_s=0.5)


def test_workers_on_loopback_and_elsewhere_do_not_go_together():
    with pytest.raises(ValueError, match=r'workers on other machines cannot reach '
                                         r'127\.0\.0\.1:2222, .*; name its address in the network'):
        ports.own_address(['192.0.2.1:2222', '127.0.0.1:2222'])


def test_a_trainer_that_listens_at_all_addresses_tells_workers_one_of_them():
    """They were told 0.0.0.0, which is each of them for itself, and the run never started."""
    assert ports.reached_at('0.0.0.0:2230', ['127.0.0.1:2222']) == '127.0.0.1:2230'
    assert ports.reached_at('127.0.0.1:2230', ['127.0.0.1:2222']) == '127.0.0.1:2230'


def test_a_trainer_on_loopback_does_not_go_with_workers_elsewhere():
    with pytest.raises(ValueError, match=(
            r'^--address=127\.0\.0\.1:2230 can be reached on this machine only, and the worker '
            r'192\.0\.2\.1:2222 is on another one; give the address of this machine in the '
            r'network, or leave --address out\.$')):
        ports.reached_at('127.0.0.1:2230', ['127.0.0.1:2222', '192.0.2.1:2222'])


# Hosts.

def test_tf_config_names_workers_and_this_one(monkeypatch):
    cluster = {'chief': ['c:1'], 'worker': ['a:2222', 'b:2222']}
    monkeypatch.setenv('TF_CONFIG',
                       json.dumps({'cluster': cluster, 'task': {'type': 'worker', 'index': 1}}))
    assert addresses.workers_of('TF_CONFIG') == ['a:2222', 'b:2222']
    assert addresses.own_address('TF_CONFIG') == 'b:2222'


def test_slurm_names_the_tasks_but_the_first(monkeypatch):
    for name, value in {'PROCID': 2, 'STEP_NUM_TASKS': 3, 'STEP_NODELIST': 'node[1-2]',
                        'STEP_TASKS_PER_NODE': '2,1'}.items():
        monkeypatch.setenv(f'SLURM_{name}', str(value))
    assert addresses.workers_of('slurm:3000') == ['node1:3001', 'node2:3000']
    assert addresses.own_address('slurm:3000') == 'node2:3000'


@pytest.mark.parametrize('source, error', [
    ('TF_CONFIG', r'TF_CONFIG cannot be used: the environment variable TF_CONFIG is not set, or '
                  r'has no "cluster"; name workers as host'),
    ('slurm', r'slurm cannot be used: this process is not in a job step of Slurm with two or more '
              r'tasks; name workers'),
    ('kubernetes:app=x', r'kubernetes:app=x cannot be used: .*; name workers'),
])
def test_source_that_is_not_there_says_so(monkeypatch, source, error):
    for name in ('TF_CONFIG', 'SLURM_STEP_NUM_TASKS', 'SLURM_NTASKS'):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match=error):
        addresses.workers_of(source)


@pytest.mark.parametrize(('config', 'error'), [
    ({'cluster': {'worker': ['a:1']}, 'task': {'type': 'worker', 'index': 3}},
     "TF_CONFIG calls this process task 3 of job 'worker', which its cluster does not have; "),
    ({'cluster': {'worker': 'a:1'}, 'task': {'type': 'worker', 'index': 0}},
     'TF_CONFIG cannot be used: .* must be a list or a dictionary'),
    ({'cluster': [], 'task': {'type': 'worker', 'index': 0}}, 'TF_CONFIG cannot be used: '),
    ({'cluster': {'worker': ['a:1']}, 'task': 'worker'},
     'TF_CONFIG cannot be used: its "task" must be as')])
def test_a_tf_config_that_is_wrong_is_told_in_a_sentence(monkeypatch, config, error):
    monkeypatch.setenv('TF_CONFIG', json.dumps(config))
    with pytest.raises(ValueError, match=error):
        addresses.own_address('TF_CONFIG')


def test_kubernetes_pods_are_sorted(monkeypatch):
    class Resolver:
        def __init__(self, labels, port):
            self.labels, self.port = labels, port

        def cluster_spec(self):
            assert self.labels == {'worker': ['app=x']}
            return tf.train.ClusterSpec({'worker': [f'10.0.0.{i}:{self.port}' for i in (7, 5)]})
    monkeypatch.setattr(tf.distribute.cluster_resolver, 'KubernetesClusterResolver', Resolver)
    assert addresses.workers_of('kubernetes:app=x:99') == ['10.0.0.5:99', '10.0.0.7:99']


# Servers.

def test_server_takes_threads_devices_and_no_grappler():
    config = server.session_config('cpu:3', intra_op_threads=2)
    assert (config.intra_op_parallelism_threads, config.inter_op_parallelism_threads) == (2, 3)
    assert dict(config.device_count) == {'CPU': 3, 'GPU': 0}
    assert config.graph_options.rewrite_options.disable_meta_optimizer
    assert not server.session_config(
        '', use_graph_optimizer=True).graph_options.rewrite_options.disable_meta_optimizer
    assert server.session_config('gpu:1-2').gpu_options.visible_device_list == '1,2'
    with pytest.raises(ValueError, match=r'--devices=cpu:0 of a worker; write the devices that it '
                                         r'has: cpu:4, gpu, or gpu:0-3\.'):
        server.session_config('cpu:0')


@pytest.mark.parametrize('devices', ['gpu', 'gpu:0', 'gpu:2-3'])
def test_worker_without_the_gpus_that_it_is_to_have_is_refused(devices):
    with pytest.raises(ValueError, match=rf'^--devices={devices}, but this machine has 0 GPUs that '
                                         rf'TensorFlow can use; name'):
        server.check_gpus(devices)


def test_worker_is_asked_for_no_gpu_unless_one_is_named():
    server.check_gpus('')
    server.check_gpus('cpu:2')


def test_address_that_is_free_a_moment_later_is_waited_for(monkeypatch):
    """If a killed worker is started again at once, its old server may still hold the address."""
    class BegunError(Exception):
        pass

    def begin(*_):
        raise BegunError

    monkeypatch.setattr(server, 'fork_server', begin)
    one = socket.create_server(('127.0.0.1', 0))
    address = f'127.0.0.1:{one.getsockname()[1]}'
    threading.Timer(0.3, one.close).start()
    with pytest.raises(BegunError):
        server.serve(address, server.session_config(''), 60.)


def test_address_that_is_taken_or_not_ours_is_one_sentence(monkeypatch):
    monkeypatch.setattr(server, 'TAKEN_FOR_S', 0.2)
    with socket.create_server(('127.0.0.1', 0)) as one:
        taken = f'127.0.0.1:{one.getsockname()[1]}'
        for address in (taken, '203.0.113.1:4000'):
            with pytest.raises(
                    OSError,
                    match=rf'a worker cannot listen at {address}: .*; choose another --address\.'):
                server.serve(address, server.session_config(''), 60.)


@pytest.mark.parametrize('other', ['127.0.0.1', '::1'])
def test_port_that_is_taken_at_another_address_is_one_sentence(monkeypatch, other):
    """A worker restarted its server every second, with '[Errno 98] Address already in use'."""
    monkeypatch.setattr(server, 'TAKEN_FOR_S', 0.2)
    monkeypatch.setattr(server, 'fork_server', lambda *_: pytest.fail('it starts a server'))
    family = socket.AF_INET6 if ':' in other else socket.AF_INET
    with socket.create_server((other, 0), family=family) as one:
        address = f'127.0.0.2:{one.getsockname()[1]}'
        why = (f'cannot listen at {address}: Address already in use at another address of this '
               f'machine, and TensorFlow takes the port '
               r'at all of them; choose another --address\.')
        with pytest.raises(OSError, match=f'^a worker {why}$'):
            server.serve(address, server.session_config(''), 60.)
        with pytest.raises(OSError, match=f'^the trainer {why}$'):
            client.Connection([], address)


@pytest.mark.parametrize('output', ['a pipe that nobody reads', 'a full disk'])
def test_worker_goes_on_when_its_output_cannot_be_written(monkeypatch, output):
    """A worker whose output nobody read, as in worker | head, ended at its next line.

    It was gone when the first trainer came.
    """
    class BegunTwiceError(Exception):
        pass

    begun = []

    def begin(*_):
        begun.append('a server')
        if len(begun) == 2:
            raise BegunTwiceError

    monkeypatch.setattr(server, 'fork_server', begin)
    monkeypatch.setattr(server, 'wait_for_end', lambda *_: 'a controller has come')
    reader, writer = os.pipe()
    os.close(reader)
    if output == 'a full disk':
        os.close(writer)
        writer = os.open('/dev/full', os.O_WRONLY)
    with open(writer, 'w') as unwritten:
        monkeypatch.setattr('sys.stdout', unwritten)
        with pytest.raises(BegunTwiceError):
            server.serve(f'127.0.0.1:{ports.free_port()}', server.session_config(''), 60.)


def test_trainer_that_cannot_listen_leaves_workers_to_whom_they_serve(monkeypatch):
    """The trainer ended with '[Errno 98] Address already in use' after it had reset the workers."""
    asked = []
    monkeypatch.setattr(workers, 'ask', lambda *args: asked.append(args))
    with socket.create_server(('127.0.0.1', 0)) as one:
        address = f'127.0.0.1:{one.getsockname()[1]}'
        with pytest.raises(OSError, match=f'^the trainer cannot listen at {address}: Address '
                                          f'already in use; choose another --address'):
            client.Connection(['127.0.0.1:1'], address, 0.)
    assert not asked
