"""Elastic: which workers a run goes on without, and what it says."""
from __future__ import annotations

import logging

import pytest

from lingpipe.cluster import devices, workers
from lingpipe.cluster.devices import Devices
from lingpipe.commands.elastic import Rest, rest_of
from lingpipe.training import registry

TEXT = '127.0.0.1:1,127.0.0.1:2'
A, B = TEXT.split(',')
NAME = 'process 7'


def found(missing: dict[str, str], takers: dict[str, str], monkeypatch: pytest.MonkeyPatch,
          text: str = TEXT, **pipeline: float) -> Rest | None:
    """The rest if some workers do not answer and some serve others, for a run that had them."""
    params = registry.get('tests.support.tiny_experiment.Tiny')
    params.train.elastic_after_s = 3.
    params.pipeline.set(num_cells=2, **pipeline)
    monkeypatch.setattr(workers, 'missing', lambda addresses, wait_s: dict(missing))
    monkeypatch.setattr(workers, 'served_by', lambda address: takers.get(address, NAME))
    monkeypatch.setattr(devices, 'find_all', lambda text, wait_s: Devices((
        '/job:worker/replica:0/task:0/device:CPU:0',)))
    monkeypatch.setattr('lingpipe.cluster.configure', lambda *_: None)
    return rest_of(text, params, params.instantiate, NAME, is_again=True)


def test_workers_that_all_answer_are_all_used(monkeypatch: pytest.MonkeyPatch) -> None:
    rest = found({}, {}, monkeypatch)
    assert rest is not None
    assert (rest.devices, rest.pipeline.num_cells, rest.missing) == (TEXT, 2, ())


@pytest.mark.parametrize(('missing', 'takers', 'why'), [
    ({B: 'no connection'}, {}, 'does not answer within 3 s (no connection)'),
    ({}, {B: 'process 8'}, 'was taken by process 8')])
def test_a_worker_that_is_silent_or_serves_another_trainer_is_done_without(
        missing: dict[str, str], takers: dict[str, str], why: str,
        monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, 'absl'):
        rest = found(missing, takers, monkeypatch)
    assert rest is not None
    assert (rest.devices, rest.pipeline.num_cells, rest.missing) == (A, 1, (B,))
    assert caplog.messages == [f'worker 1, {B}, {why}; the run goes on without, on {A}, with '
                               'num_cells=1 in place of 2']


@pytest.mark.parametrize(('missing', 'text', 'device_bytes', 'why'), [
    ((A, B), TEXT, None, 'no device is left'),
    ((B,), TEXT, 100., 'device_bytes'),
    ((B,), f'{TEXT},/job:worker/task:0/device:CPU:0', None,
     'names devices by the numbers of their workers, which change without one of them; name the '
     'workers alone')])
def test_a_run_that_cannot_go_on_without_says_why_and_waits(
        missing: tuple[str, ...], text: str, device_bytes: float | None, why: str,
        monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, 'absl'):
        assert found(dict.fromkeys(missing, 'no answer'), {}, monkeypatch, text,
                     device_bytes=device_bytes) is None
    assert 'the run cannot go on without: ' in caplog.text and why in caplog.text
