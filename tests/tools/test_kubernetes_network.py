"""Pods with links: valid for Kubernetes, closed to strangers, and trained to the same bits."""
from __future__ import annotations

import functools
import json
import os
import pathlib
import re

import kubernetes_validate
import numpy as np
import pytest
import yaml

from lingpipe.tools import dry_run, kubernetes_network, launch_kubernetes, launch_local, link_keys
from tests.support import links
from tests.support.forks import Fork, environment, run_module
from tests.support.links import ANSWER, ASKS, ASKS_BY_TLS, HAS_KEY, WHY_NOT
from tests.support.local_workers import TINY, checkpoint_of, wait_until

FLAGS = ['--model=image.digits.Dense', '--logdir=/y/digits']
NUM_CELLS = 2
NO_OPENSSL = link_keys.missing('openssl')


def manifest(num_workers: int) -> str:
    return launch_kubernetes.manifest(num_workers, 'image:1', 'training', FLAGS,
                                      links_image='stunnel:5')


def pod_of(parsed: dict) -> dict:
    return parsed['spec']['template']['spec']


def run_in(namespace: str, *flags: str) -> None:
    """Runs the trainer, in a network namespace unless that is ''."""
    if namespace:
        links.enter(namespace)
    run_module('lingpipe.trainer', *flags)


def run_dry(logdir: pathlib.Path, *own: str) -> dict[str, np.ndarray]:
    """Returns the variables after a dry run; forks stand for its processes of Python."""
    processes = []

    def start(flags, *_, prefix=()):
        namespace = links.namespace_of(prefix) if prefix else ''
        processes.append(Fork(run_in, namespace, *flags, env=environment()))
        return processes[-1]

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(launch_local, 'start', start)
        patch.setattr(dry_run, 'trainer_flags', lambda _: [f'--logdir={logdir}', '--steps=2'])
        launch_kubernetes.main(['--image=x', '--claim=y', '--dry_run', *own, '--', TINY,
                                '--logdir=/y/not/here', f'--set=pipeline.num_cells={NUM_CELLS}'])
    out, err = processes[-1].communicate()
    assert ended.value.code == 0, err
    assert 'done after 2 steps' in out
    return checkpoint_of(logdir, 2)


@pytest.fixture(scope='module')
def variables(tmp_path_factory) -> dict[str, np.ndarray]:
    """The variables after a dry run of a worker in the open, which has a device for each GPU."""
    return run_dry(tmp_path_factory.mktemp('open'), '--workers=1', f'--gpus={NUM_CELLS}')


def test_any_text_is_yaml_that_means_it():
    texts = ["/shared/\U0001f600 dir's", '\x85\u2028\ufffe "\\ud83d\\ude00"']
    assert yaml.safe_load(kubernetes_network.as_yaml(texts)) == texts


def test_a_dry_run_trains_here_with_the_commands_of_the_job(variables):
    assert variables


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_workers_that_are_reached_by_links_only_train_to_the_same_bits(variables, tmp_path):
    linked = run_dry(tmp_path / 'log', f'--workers={NUM_CELLS}', f'--secure_links={tmp_path}/keys')
    assert linked.keys() == variables.keys()
    assert [name for name in variables if linked[name].tobytes() != variables[name].tobytes()] == []
    assert not (tmp_path / 'keys').exists()


def test_objects_with_links_are_those_of_the_schema_and_open_one_port_to_the_job():
    found = {one['kind']: one for one in yaml.safe_load_all(manifest(3))}
    assert list(found) == ['ConfigMap', 'Service', 'NetworkPolicy', 'StatefulSet', 'Job']
    for one in found.values():
        kubernetes_validate.validate(one, '1.31', strict=True)

    rule, = found['NetworkPolicy']['spec']['ingress']
    assert rule == {'from': [{'podSelector': {'matchLabels': {'app': 'lingpipe'}}}],
                    'ports': [{'protocol': 'TCP', 'port': 2222}]}
    worker, trainer = (pod_of(found[kind]) for kind in ('StatefulSet', 'Job'))
    assert '--address=127.0.0.1:2227' in worker['containers'][0]['command']
    assert {'--devices=127.0.0.1:2223,127.0.0.1:2224,127.0.0.1:2225',
            '--address=127.0.0.1:2226'} <= set(trainer['containers'][0]['command'])
    assert (trainer['hostname'], trainer['subdomain']) == ('trainer', 'lingpipe')


def test_no_process_of_a_pod_with_links_has_rights_that_it_does_not_need():
    found = {one['kind']: one for one in yaml.safe_load_all(manifest(3))}
    for role, kind in (('worker', 'StatefulSet'), ('trainer', 'Job')):
        pod = pod_of(found[kind])
        assert pod['securityContext']['runAsNonRoot'] and not pod['automountServiceAccountToken']
        links_of_pod, = pod['initContainers']
        assert (links_of_pod['image'], links_of_pod['restartPolicy']) == ('stunnel:5', 'Always')
        for container in (links_of_pod, *pod['containers']):
            assert container['securityContext'] == {
                'allowPrivilegeEscalation': False, 'readOnlyRootFilesystem': True,
                'capabilities': {'drop': ['ALL']}}
        secrets = [source['secret']['name'] for volume in pod['volumes'] if 'projected' in volume
                   for source in volume['projected']['sources'] if 'secret' in source]
        assert secrets == [f'lingpipe-links-{role}']
        assert [mount['name'] for mount in pod['containers'][0]['volumeMounts']
                ] == ['files', 'tmp'][role == 'worker':]


@pytest.mark.skipif(bool(NO_OPENSSL), reason=NO_OPENSSL)
def test_secrets_are_for_this_user_only_each_with_its_own_key_and_are_never_replaced(tmp_path):
    own = ['--image=x', '--claim=y', f'--secure_links={tmp_path}/keys']
    launch_kubernetes.main([*own, f'--output={tmp_path}/job.yaml', '--', *FLAGS])
    path = tmp_path / 'keys/secrets.yaml'
    assert [one.stat().st_mode & 0o077 for one in (path, path.parent)] == [0, 0]

    worker, trainer = yaml.safe_load_all(path.read_text())
    for one in (worker, trainer):
        kubernetes_validate.validate(one, '1.31', strict=True)
        assert list(one['stringData']) == ['ca.pem', 'cert.pem', 'key.pem']
    assert worker['stringData']['ca.pem'] == trainer['stringData']['ca.pem']
    assert worker['stringData']['key.pem'] != trainer['stringData']['key.pem']
    assert 'PRIVATE' not in (tmp_path / 'job.yaml').read_text()
    with pytest.raises(SystemExit, match='secrets.yaml is there already, and keys are never'):
        launch_kubernetes.main([*own, '--', *FLAGS])


@pytest.mark.skipif(bool(NO_OPENSSL), reason=NO_OPENSSL)
def test_secrets_of_a_job_whose_name_is_a_word_of_yaml_have_it_as_their_label():
    for one in yaml.safe_load_all(kubernetes_network.new_secrets('on')):
        assert one['metadata']['labels'] == {'app': 'on'}


@pytest.mark.parametrize('flags, error', [
    (['--links_image=s'], '--links_image and --user are for --secure_links, which is missing; '),
    (['--user=7'], '--links_image and --user are for --secure_links, which is missing; '),
    (['--secure_links=k', '--links_image=A'], "--links_image='A' is no container image; write"),
    (['--secure_links=k', '--port=80'], '--port=80 with --secure_links is one of those below 1024'),
    (['--secure_links=k', '--port=65532'], '--secure_links of 2 workers need as many ports and '),
    (['--secure_links=k', '--workers=9999'], '--secure_links of 9999 workers need .* bytes of set'),
    (['--secure_links=k', '--dry_run', '--workers=9'], '--dry_run starts 9 workers'),
    (['--secure_links=/dev/null/k'], '--secure_links=/dev/null/k cannot be a folder: /dev/null is'),
])
def test_wrong_flags_of_links_are_one_sentence_and_write_nothing(
        tmp_path, monkeypatch, capsys, flags, error):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        launch_kubernetes.main(['--image=x', '--claim=y', '--output=job', *flags, '--', *FLAGS])
    text = capsys.readouterr().err + str(ended.value.code)
    assert re.search(error, text) and os.listdir() == [], text


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_only_who_has_a_key_of_this_job_gets_through_to_a_pod(tmp_path):
    secrets = kubernetes_network.new_secrets('lingpipe', days=1)
    for place, text in {'this': secrets, 'other': kubernetes_network.new_secrets('lingpipe', 1),
                        }.items():
        (tmp_path / place).mkdir()
        for file, content in json.loads(re.findall('stringData: (.*)', text)[1]).items():
            (tmp_path / place / file).write_text(content)

    with dry_run.linked_pods(manifest(1), secrets, 'lingpipe', 1) as network:
        worker = Fork(links.answer, links.namespace_of(network.prefix(0)), 2225)
        reply = functools.partial(links.reply, network.prefix(1))   # in the trainer's pod
        address = f'{network.host(0)}:2222'
        try:
            wait_until(lambda: reply(ASKS, '127.0.0.1/2223') == ANSWER)
            assert reply(ASKS, address.replace(':', '/')) == b''
            assert reply(ASKS, address.replace(':2222', '/2225')) == b''
            assert reply(ASKS_BY_TLS, address) == b''
            assert reply(ASKS_BY_TLS + HAS_KEY.format(tmp_path / 'other'), address) == b''
            assert reply(ASKS_BY_TLS + HAS_KEY.format(tmp_path / 'this'), address) == ANSWER
        finally:
            worker.terminate()
            worker.communicate()
