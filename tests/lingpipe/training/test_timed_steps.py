"""Timed steps: which steps they are, and which of them count."""
import json
from typing import Any

import pytest

from lingpipe.training.timed_steps import TimedSteps, soon_after
from tests.support import local_workers


@pytest.mark.parametrize(('last_step', 'expected'), [
    (None, []), (3, [1, 2, 3]), (12, [6, 7, 8, 9, 10, 11, 12])])
def test_timed_steps_end_with_the_last(last_step, expected):
    timed = TimedSteps(last_step)
    assert [step for step in range(1, 20) if timed.has(step)] == expected


def test_steps_soon_after_the_start_end_with_the_run():
    assert soon_after(0, 1000).last_step == 9
    assert soon_after(100, 1000).last_step == 109
    assert soon_after(0, 4).last_step == 4


def test_warm_up_is_not_measured_unless_it_is_all_there_is():
    timed = TimedSteps(3)
    timelines: list[Any] = ['first', 'second', 'third', 'fourth']
    for timeline in timelines[:2]:
        timed.add(timeline)
    assert list(timed.measured) == ['second']
    for timeline in timelines[2:]:
        timed.add(timeline)
    assert list(timed.measured) == ['third', 'fourth']


@pytest.mark.slow
def test_steps_on_workers_are_timed_where_ops_must_be_deterministic(tmp_path, monkeypatch):
    """TensorFlow refuses to tell the time there, and Python does not."""
    monkeypatch.setenv('TF_DETERMINISTIC_OPS', '1')
    with local_workers.workers(1, hangs_after_s=60.) as (worker,):
        worker.wait()
        trainer = local_workers.Trainer(tmp_path, [f'2*{worker.address}'], '--timeline')
        _, err = trainer.process.communicate(timeout=200)
        assert trainer.process.returncode == 0, err[-2000:]
    (path,) = (tmp_path / 'timeline').glob('*-breakdown.json')
    parts = json.loads(path.read_text())
    assert 0. < parts['measured']['forward'] < parts['step_s']
