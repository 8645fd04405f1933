"""Device setup: how many CPU devices a process makes, and the address from --address."""
from __future__ import annotations

import json

import pytest

from lingpipe.commands.device_setup import listening_address, num_cpus


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
