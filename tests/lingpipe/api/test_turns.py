"""Turns: uses of a run in several threads, or within each other, never mix up weights."""
from __future__ import annotations

import pathlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lingpipe.api.run import Run
from lingpipe.api.start import start
from lingpipe.training.hooks.hook import Hook
from tests.support.tiny_experiment import Tiny


@pytest.fixture(scope='module')
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run with two checkpoints."""
    with start(Tiny, logdir=tmp_path_factory.mktemp('run')) as run:
        run.train(steps=2, evaluate=False)
        run.train(steps=2, evaluate=False)
        yield run


def test_threads_evaluate_the_checkpoints_that_they_name(run: Run) -> None:
    """Each changed the weights with which the other evaluated."""
    alone = [run.evaluate(2), run.evaluate(4)]
    assert alone[0] != alone[1]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run.evaluate, [2, 4] * 8)) == alone * 8


def test_a_call_within_another_does_not_change_its_weights(run: Run) -> None:
    """An evaluation went on with the weights that `say` had asked for."""
    run.evaluate(2, say=lambda line: run.evaluate(2))
    with pytest.raises(ValueError, match='cannot take another checkpoint within another call'):
        run.evaluate(2, say=lambda line: run.evaluate(4))
    with pytest.raises(ValueError, match='cannot train within another call'):
        run.evaluate(2, say=lambda line: run.train(steps=1))


class Waiting(Hook):
    """Lets the test look, and takes an earlier checkpoint meanwhile."""

    began = threading.Event()
    may_end = threading.Event()
    run: Run

    def on_step(self, run: Any, step: int, results: Any) -> None:
        self.began.set()
        self.may_end.wait(60.)
        self.run.evaluate(1)


def test_nobody_waits_for_a_training_and_none_loses_its_logdir(tmp_path: pathlib.Path) -> None:
    """`close` let go of the logdir of a run that went on writing there."""
    with start(Tiny, logdir=tmp_path) as run:
        run.train(steps=1, evaluate=False)
    hooks = {'hooks': (Waiting.Params(on_error='stop'),)}
    with start(Tiny, logdir=tmp_path, set=hooks) as run, ThreadPoolExecutor(1) as pool:
        Waiting.run = run
        training = pool.submit(run.train, steps=1, evaluate=False)
        assert Waiting.began.wait(60.)
        try:
            for use in run.evaluate, run.close, lambda: run.train(steps=1):
                with pytest.raises(ValueError, match='trains in another thread; wait until that'):
                    use()
            assert run.plan and run.step == 1
        finally:
            Waiting.may_end.set()
        assert training.result().step == 2
        assert run.evaluate() == run.evaluate(2) != run.evaluate(1)


def test_nobody_waits_for_a_watch(run: Run) -> None:
    """It ends when the trainer does, which may take days."""
    class EndedError(Exception):
        """Ends the watch."""

    def use() -> None:
        try:
            reader.evaluate()
        except ValueError as error:
            refused.append(error)

    def look(line: str) -> None:
        user = threading.Thread(target=use, daemon=True)
        user.start()
        user.join(10.)
        raise EndedError(refused)

    refused: list[ValueError] = []

    with start(Tiny, logdir=run.logdir, only_reads=True) as reader:
        with pytest.raises(EndedError, match='watches in another thread'):
            reader.watch(say=look)
        assert reader.evaluate(4) == run.evaluate(4)
