"""Device setup: how many CPU devices a process makes, and the address from --address."""
from __future__ import annotations

import json

import pytest
import tensorflow as tf

from lingpipe.cluster.client import LostWorkerError
from lingpipe.cluster.devices import Devices
from lingpipe.cluster.workers import SilentWorkerError
from lingpipe.commands import device_setup
from lingpipe.commands.device_setup import listening_address, num_cpus
from lingpipe.commands.run_options import RunOptions
from lingpipe.training import registry
from lingpipe.training.experiment import Experiment

ADDRESSES = ('127.0.0.1:1', '127.0.0.1:2')


@pytest.mark.parametrize(('names', 'num_gpus', 'expected'), [
    ((), 0, 4), ((), 3, 4), ((), 4, 0),
    (('/device:CPU:2', '/device:CPU:0'), 0, 3), (('/device:GPU:0',), 1, 0)])
def test_every_cell_of_every_replica_has_a_cpu_unless_there_are_gpus_or_names(
        names: tuple[str, ...], num_gpus: int, expected: int) -> None:
    assert num_cpus(names, 4, num_gpus) == expected


def test_address_is_written_or_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {'worker': ['a:1', 'b:2']}
    monkeypatch.setenv('TF_CONFIG', json.dumps(
        {'cluster': cluster, 'task': {'type': 'worker', 'index': 1}}))
    assert listening_address('127.0.0.1:2222') == '127.0.0.1:2222'
    assert listening_address('') == ''
    assert listening_address('TF_CONFIG') == 'b:2'


@pytest.mark.parametrize(('workers', 'master'), [((), ''), (('a:1', 'b:2'), 'grpc://a:1')])
def test_tpus_are_started_where_they_are(workers: tuple[str, ...], master: str,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a TPU, the call alone is checked: the hosts of a slice start at their first."""
    names = ('/job:worker/replica:0/task:0/device:TPU:0',)
    masters = []
    monkeypatch.setattr(device_setup.devices, 'find', lambda *_, **__: Devices(names, workers))
    monkeypatch.setattr(device_setup.cluster, 'configure', lambda *_: None)
    monkeypatch.setattr(device_setup, 'Connection', lambda *_: 'connected')
    monkeypatch.setattr(tf.tpu.experimental, 'initialize_tpu_system',
                        lambda resolver: masters.append(resolver.master()))

    placement = device_setup.place(Experiment.Params(), RunOptions('train', devices='tpu'))
    assert placement == device_setup.Placement(names, 'connected' if workers else None)
    assert masters == [master]


@pytest.mark.parametrize(('missing', 'error', 'text'), [
    # The run can go on without: it starts again, and finds that it has to.
    ({}, LostWorkerError, r'^worker 1, 127.0.0.1:2, does not answer within 300 s \(cut off\)$'),
    # It cannot, since no worker is left.
    (dict.fromkeys(ADDRESSES, 'cut off'), SilentWorkerError, '; start it there with --mode='),
])
def test_a_worker_that_falls_silent_after_all_have_answered_does_not_end_an_elastic_run(
        missing: dict[str, str], error: type[OSError], text: str,
        monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer ended if a worker was killed while it connected to all of them."""
    def find(*_: object, **__: object) -> Devices:
        raise SilentWorkerError(ADDRESSES[1], 1, 300., 'cut off')

    params = registry.get('tests.support.tiny_experiment.Tiny')
    params.train.elastic_after_s = 1.
    monkeypatch.setattr('lingpipe.cluster.workers.missing', lambda *_: missing)
    monkeypatch.setattr(device_setup.devices, 'find', find)
    options = RunOptions('train', devices=','.join(ADDRESSES))
    with pytest.raises(error, match=text):
        device_setup.place(params, options, make_experiment=params.instantiate)
