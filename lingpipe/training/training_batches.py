"""Training batches: the mini-batches that a run is trained on, and the example that is at fault."""
from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

from lingpipe.input.first_batch import check_batch, first_batch, named
from lingpipe.input.saved_iterators import SavedIterators
from lingpipe.layers.nested import Nested
from lingpipe.pipeline.execution.program import Program
from lingpipe.training.experiment import Experiment

Batch = dict[str, Nested]   # name -> tensor [B, ...], or a nested value of such


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

        Raises:
          ValueError: the input cannot be read, or the network cannot be trained on the first.
        """
        position = step * self._examples_per_step
        with named('train_input'):
            batches = self._saved.batches(position)
        first = first_batch('train_input', self._source, position, batches, self._program.check)
        return itertools.chain([] if first is None else [first], batches)

    def save(self) -> None:
        """Saves where the input is, if it is one that cannot begin at a position."""
        self._saved.save()

    def check_update(self, step: int) -> None:
        """Raises ValueError if an example of an update has an id that a layer cannot use.

        Args:
          step: number of steps before the update.
        """
        position = step * self._examples_per_step
        batches = self._source.batches(position)
        for batch in itertools.islice(batches, self._batches_per_step):
            check_batch(f'train_input, in step {step + 1}', self._source, position, batch,
                        self._program.check)
            position += self._batch_size
