"""The tiny experiment with a slow evaluation and a slow decoding, slow_experiment.Slow.

Both say when they have begun.
"""
from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lingpipe.hyperparams import field
from lingpipe.training.experiment import Experiment
from lingpipe.training.problem import Problem
from lingpipe.training.registry import register
from tests.support.tiny_experiment import Pairs, Tiny

BEGUN_AFTER = 3   # This many mini-batches.


class SlowPairs(Pairs):
    """Creates a file once a few of many mini-batches have been read."""

    class Params(Pairs.Params):
        marker: str = field('', 'The file.')

    params: Params

    def batches(self, position: int = 0) -> Iterator[Any]:
        for number, batch in enumerate(super().batches(position)):
            if number == BEGUN_AFTER and self.params.marker:
                pathlib.Path(self.params.marker).touch()
            yield batch


class Squares(Problem):
    """Decodes each line, a number, to the loss of a mini-batch that is filled with it."""

    class Params(Problem.Params):
        marker: str = field('', 'A file that is made when a few lines were decoded.')

    params: Params

    def decode(self, program: Any, lines: Sequence[str], facts: Mapping[str, Any]) -> Sequence[str]:
        evaluator, found = program.evaluator(program.batch_spec), []
        for number, line in enumerate(lines):
            if number == BEGUN_AFTER and self.params.marker:
                pathlib.Path(self.params.marker).touch()
            batch = {name: np.full(spec.shape, 1. if name == 'weight' else float(line), np.float32)
                     for name, spec in program.batch_spec.items()}
            total, weight = evaluator.step(batch)[0]['loss']
            found.append(f'{line} {float(total) / float(weight):.9g}')
        return found


@register
class Slow(Tiny):
    """The tiny experiment, evaluated on 4,000 examples."""

    @classmethod
    def params(cls) -> Experiment.Params:
        p = super().params()
        p.task = Squares.Params(model=p.task.model, learner=p.task.learner)
        p.eval_inputs = {
            'test': SlowPairs.Params(batch_size=8, num_examples=4_000, shuffle=False, num_epochs=1)}
        return p
