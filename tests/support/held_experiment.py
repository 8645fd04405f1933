"""The tiny experiment that a test can disturb before it ends, held_experiment.Held.

Its inputs and its decoding say when they have begun, go on, and wait before their end until the
test lets them go. So a test need not be quick, and they need not be long.
"""
from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lingpipe.hyperparams import field
from lingpipe.training.experiment import Experiment
from lingpipe.training.problem import Problem
from lingpipe.training.registry import register
from tests.support.tiny_experiment import Pairs, Tiny

BEGUN_AFTER = 20   # So many mini-batches or lines: the look at the first one fetches fewer ahead.
HELD_AFTER = 35


def let_go(marker: pathlib.Path) -> None:
    """Lets go what is held, or will be, with this marker."""
    _permission(str(marker)).touch()


def hold(marker: pathlib.Path) -> None:
    """Holds again what was let go."""
    _permission(str(marker)).unlink()


def _permission(marker: str) -> pathlib.Path:
    return pathlib.Path(f'{marker}.go')


def _mark_and_wait(marker: str, number: int, held_after: int = HELD_AFTER) -> None:
    """Creates the file `marker` at the begin, and waits before the end until a test lets go."""
    if marker and number == min(BEGUN_AFTER, held_after):
        pathlib.Path(marker).touch()
    while marker and number >= held_after and not _permission(marker).exists():
        time.sleep(0.02)


class HeldPairs(Pairs):
    """Pairs whose mini-batches can be held, and can be slow."""

    class Params(Pairs.Params):
        marker: str = field('', 'The file that says that they have begun; none holds nothing.')
        held_after: int = field(HELD_AFTER, 'Mini-batches before the wait.', least=1)
        seconds: float = field(0., 'Time for making a mini-batch.', least=0)

    params: Params

    def batches(self, position: int = 0) -> Iterator[Any]:
        p = self.params
        for number, batch in enumerate(super().batches(position), position // p.batch_size):
            _mark_and_wait(p.marker, number, p.held_after)
            time.sleep(p.seconds)
            yield batch


class Squares(Problem):
    """Decodes each line, a number, to the loss of a mini-batch that is filled with it."""

    class Params(Problem.Params):
        marker: str = field('', 'The file that says that decoding has begun; none holds nothing.')

    params: Params

    def decode(self, program: Any, lines: Sequence[str], facts: Mapping[str, Any]) -> Sequence[str]:
        evaluator, found = program.evaluator(program.batch_spec), []
        for number, line in enumerate(lines):
            _mark_and_wait(self.params.marker, number)
            batch = {name: np.full(spec.shape, 1. if name == 'weight' else float(line), np.float32)
                     for name, spec in program.batch_spec.items()}
            total, weight = evaluator.step(batch)[0]['loss']
            found.append(f'{line} {float(total) / float(weight):.9g}')
        return found


@register
class Held(Tiny):
    """The tiny experiment, evaluated on 40 mini-batches."""

    @classmethod
    def params(cls) -> Experiment.Params:
        p = super().params()
        p.task = Squares.Params(model=p.task.model, learner=p.task.learner)
        p.train_input = HeldPairs.Params(batch_size=8)
        p.eval_inputs = {
            'test': HeldPairs.Params(batch_size=8, num_examples=320, shuffle=False, num_epochs=1)}
        return p
