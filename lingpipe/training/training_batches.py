"""Training batches: the mini-batches that a run is trained on, and the example that is at fault."""
from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping

from lingpipe.input.first_batch import check_batch, first_batch, named, nonfinite
from lingpipe.input.saved_iterators import SavedIterators
from lingpipe.input.unread_batch import UnreadBatch, check_sendable
from lingpipe.layers.nested import Nested
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.execution.reading_hosts import (
    check_same_data,
    reading_hosts,
    reads_on_workers,
    shape_at,
)
from lingpipe.training.experiment import Experiment

# Name -> tensor [B, ...], or a nested value of such. It may be an UnreadBatch.
Batch = Mapping[str, Nested]


class TrainingBatches:
    """The mini-batches of an experiment's train_input, by the step that they belong to."""

    def __init__(self, experiment: Experiment, program: Program, logdir: str):
        self._source = experiment.train_input
        self._saved = SavedIterators(self._source, os.path.join(logdir, 'train_input'))
        self._examples_per_step = experiment.examples_per_step
        self._batches_per_step = experiment.params.task.learner.accumulate
        self._batch_size = experiment.params.train_input.batch_size
        self._program = program

    def after(self, step: int) -> Iterator[Batch]:
        """The mini-batches for the steps after `step`. The first of them is checked.

        They are only positions if workers read the input (pipeline.read_on_workers).

        Raises:
          ValueError: the input cannot be read, or the network cannot be trained on the first.
        """
        position = step * self._examples_per_step
        with named('train_input'):
            batches = self._saved.batches(position)
        first = first_batch('train_input', self._source, position, batches, self._program.check)
        if first is None:
            return iter(())
        if reads_on_workers(self._program.plan):
            return self._unread(position, first)
        return itertools.chain([first], batches)

    def _unread(self, position: int, first: Batch) -> Iterator[Batch]:
        """The mini-batches from a position on, as workers make them.

        Args:
          position: of the first.
          first: the first, as this process makes it, with which those of the workers are compared.
        """
        source, plan = self._source, self._program.plan
        with named('train_input'):
            check_sendable(source)
            check_same_data(UnreadBatch(source, position, made=first),
                            reading_hosts(plan.replicas))
        has_shapes = len(source.specs()) > 1

        def unread(number: int) -> UnreadBatch:
            start = position + number * self._batch_size
            shape = shape_at(source, start, plan) if has_shapes else 0
            return UnreadBatch(source, start, shape, made=None if number else first)

        num_left = source.num_batches(position)
        return map(unread, itertools.count() if num_left is None else range(num_left))

    def save(self) -> None:
        """Saves where the input is, if it is one that cannot begin at a position."""
        self._saved.save()

    def check_update(self, step: int) -> str:
        """Says which example of an update is not finite; '' if all are.

        Args:
          step: number of steps before the update.

        Raises:
          ValueError: an example has an id that a layer cannot use.
        """
        bad_example = ''
        position = step * self._examples_per_step
        batches = self._source.batches(position)
        for batch in itertools.islice(batches, self._batches_per_step):
            check_batch(f'train_input, in step {step + 1}', self._source, position, batch,
                        self._program.check)
            bad_example = bad_example or nonfinite(self._source, position, batch)
            position += self._batch_size
        return bad_example
