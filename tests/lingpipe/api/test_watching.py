"""A watch survives that checkpoints are removed while it reads them, and ends with the run."""
from __future__ import annotations

import pathlib
import types
from typing import Any

import pytest
import tensorflow as tf

from lingpipe.api import watching
from lingpipe.checkpoint import Checkpointer
from lingpipe.checkpoint.checkpointer import NotWholeError
from lingpipe.checkpoint.unreadable import UnreadableError
from lingpipe.training import logdir_lock
from lingpipe.training.evaluation_log import EvaluationLog
from tests.support.tiny_experiment import Tiny


class FakeEvaluating:
    """Gives each step a loss."""

    def check(self, metadata: Any) -> None:
        """Finds nothing wrong."""

    def on(self, name: str, step: int, is_stopping: Any) -> dict[str, float]:
        return {'loss': 1. / step}


def test_a_removed_checkpoint_is_passed_over_and_a_watch_ends_when_nobody_trains(
        tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, 'LOOK_EVERY_S', 0.)
    trainer = Checkpointer(str(tmp_path / 'checkpoints'), keep=2)
    for step in (1, 2):
        trainer.save(step, {'weights/w': tf.Variable(1.)})
    params = Tiny().params()
    params.train.worker_timeout_s = 0.
    restored_steps = []

    def restored(step: int) -> Any:
        restored_steps.append(step)
        if step == 1:
            trainer.save(3, {'weights/w': tf.Variable(1.)})   # It removes step 1.
            raise NotWholeError('a file cannot be read')
        return FakeEvaluating(), {'step': step}

    said: list[str] = []
    with logdir_lock.hold(str(tmp_path)):
        assert logdir_lock.is_held(str(tmp_path))
    assert not logdir_lock.is_held(str(tmp_path))
    watching.Watch(params.freeze().instantiate(), str(tmp_path), types.SimpleNamespace(name=''),
                   restored).run(said.append)
    assert restored_steps == [1, 2, 3]
    assert said[0] == 'step 1: its checkpoint was removed before it was evaluated'
    assert 'nobody has trained in' in said[-1]
    assert [line['step'] for line in EvaluationLog(str(tmp_path)).read()] == [2, 3]
    best = trainer.best()
    assert best and best[0] == 3


def test_a_watch_ends_with_the_name_of_the_checkpoint_that_cannot_be_read(
        tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, 'LOOK_EVERY_S', 0.)
    trainer = Checkpointer(str(tmp_path / 'checkpoints'), keep=2)
    for step in (1, 2):
        trainer.save(step, {'weights/w': tf.Variable(1.)})
    params = Tiny().params()
    params.train.num_steps = 2

    def restored(step: int) -> Any:
        if step == 1:
            raise NotWholeError('a file is damaged')
        return FakeEvaluating(), {'step': step}

    said: list[str] = []
    watching.Watch(params.freeze().instantiate(), str(tmp_path), types.SimpleNamespace(name=''),
                   restored).run(said.append)
    assert said[0] == 'step 1 is passed over: a file is damaged'
    assert said[-1] == ('the run has ended, and its checkpoints are evaluated but for 1, which '
                        'cannot be read')


def test_a_watch_says_that_it_waits_for_the_first_checkpoint(
        tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, 'LOOK_EVERY_S', 0.)
    params = Tiny().params()
    params.train.worker_timeout_s = 0.
    said: list[str] = []
    watch = watching.Watch(params.freeze().instantiate(), str(tmp_path / 'new'),
                           types.SimpleNamespace(name=''),
                           lambda step: pytest.fail('nothing to restore'))
    with pytest.raises(ValueError, match='^nobody has trained in .*/new for 0 s .*, and it has no '
                                         'checkpoint; correct --logdir, or start the run'):
        watch.run(said.append)
    assert said[0] == f'{tmp_path}/new has no checkpoint yet; the watch waits for the first'
    assert not (tmp_path / 'new').exists()


def test_a_mark_that_cannot_be_written_is_written_by_the_next_watch(
        tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log had the evaluation already, and so nobody looked at it again."""
    trainer = Checkpointer(str(tmp_path / 'checkpoints'), keep=2)
    trainer.save(1, {'weights/w': tf.Variable(1.)})
    params = Tiny().params()
    params.train.worker_timeout_s = 0.

    def watch() -> None:
        watching.Watch(params.copy().freeze().instantiate(), str(tmp_path),
                       types.SimpleNamespace(name=''),
                       lambda step: (FakeEvaluating(), {'step': step})).run(lambda line: None)

    monkeypatch.setattr(watching, 'LOOK_EVERY_S', 0.)
    with monkeypatch.context() as patch:
        def fail(*args: Any) -> None:
            raise OSError(28, 'No space left on device')

        patch.setattr(Checkpointer, 'mark_best', fail)
        with pytest.raises(OSError, match=r'cannot be written, and a watch keeps its evaluations .*'
                                          'there: .*No space left on device; make room'):
            watch()
    watch()
    assert trainer.best() == (1, 1.)


def test_a_watch_ends_at_a_checkpoint_that_it_may_not_read(tmp_path: pathlib.Path) -> None:
    """It may be whole, and whoever started the watch can give it the permission."""
    Checkpointer(str(tmp_path / 'checkpoints')).save(1, {'weights/w': tf.Variable(1.)})

    def restored(step: int) -> Any:
        raise UnreadableError('a file cannot be read')

    watch = watching.Watch(Tiny().params().freeze().instantiate(), str(tmp_path),
                           types.SimpleNamespace(name=''), restored)
    with pytest.raises(OSError, match=r'^a file cannot be read$'):
        watch.run(lambda text: None)
