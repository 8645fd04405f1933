"""Saved state: what a training takes along from one run to the next: its variables, its step and a few counts, in checkpoints."""
from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from absl import logging

from lingpipe import checkpoint
from lingpipe.checkpoint import Checkpointer, side_files
from lingpipe.input import Input
from lingpipe.pipeline.execution.program import Program
from lingpipe.training.problem import Problem


class SavedState:
    """The state of one training, restored at its start and saved from time to time.

    Attributes:
      step: number of updates made.
      num_nonfinite, num_nonfinite_in_a_row: steps whose loss or gradient was not finite.
      num_updates: steps that were not skipped.
    """

    def __init__(self, checkpointer: Checkpointer, program: Program, task: Problem, source: Input, examples_per_step: int,
                 is_in_background: bool, say: Callable[[str], None], *, params_text: str = '',
                 check_params: Callable[[str], None] = lambda text: None):
        """
        Args:
          checkpointer: of the checkpoints.
          program: whose variables they hold.
          task, source: whose facts are kept with them.
          examples_per_step: of an update.
          is_in_background: whether steps may go on while one is written.
          say: shows a line.
          params_text: the experiment's Params, which every checkpoint keeps, so that no other experiment resumes from it.
          check_params: is given the Params text of a checkpoint, and raises ValueError if this run cannot resume from it.
        """
        self.step = self.num_nonfinite = self.num_nonfinite_in_a_row = self.num_updates = 0
        self._checkpointer, self._program, self._task, self._source = checkpointer, program, task, source
        self._variables = program.variables()
        self._examples_per_step = examples_per_step
        self._is_in_background, self._say = is_in_background, say
        self._params_text, self._check_params = params_text, check_params
        self._last_saved = -1

    @property
    def position(self) -> int:
        """Number of the next example."""
        return self.step * self._examples_per_step

    @property
    def is_saved(self) -> bool:
        """Whether the step has a checkpoint, or one is being written."""
        return self.step == self._last_saved

    def restore(self, source: Any, logdir: str) -> str:
        """Sets everything from the newest checkpoint, or the weights from `source`, and says what it found.

        Args:
          source: InitializeFrom.Params, for a new training.
          logdir: gets a report on that.

        Raises:
          ValueError: checkpoint or weights do not fit, or the task refuses its input.
        """
        metadata = self._checkpointer.restore(self._variables, check=self._check_metadata)
        self._task.check_facts((metadata or {}).get('task', {}), self._source)
        if metadata is None:
            if source.directory:
                taken = checkpoint.initialize(
                    self._variables, source.directory, source.rules,
                    lambda theirs, keys: self._task.check_taken(theirs.get('task', {}), keys, self._source))
                self._program.placed.follow_weights(taken.taken)
                report = taken.text()
                path = os.path.join(logdir, 'initialization.txt')
                try:
                    side_files.write_text(path, report)
                except OSError as error:
                    logging.warning('%s cannot be written: %s', path, error.strerror)
                return f'a new training; {report.splitlines()[0]} See {path}.'
            return 'a new training'
        self.step = self._last_saved = metadata['step']
        self.num_nonfinite, self.num_nonfinite_in_a_row = metadata['num_nonfinite'], metadata['num_nonfinite_in_a_row']
        # A checkpoint of an older lingpipe does not hold the number of updates.
        self.num_updates = metadata.get('num_updates', self.step - self.num_nonfinite)
        if metadata['position'] != self.position:
            raise ValueError(f'the checkpoint of step {self.step} was written after {metadata["position"]} examples, but {self.step} '
                             f'steps of {self._examples_per_step} are {self.position}; set train_input.batch_size and '
                             f'task.learner.accumulate back, or choose another logdir.')
        return f'going on after step {self.step}, from {self._checkpointer.directory}'

    def _check_metadata(self, metadata: Mapping[str, Any]) -> None:
        if metadata.get('params'):   # a lingpipe that did not keep it may have written the checkpoint
            try:
                self._check_params(metadata['params'])
            except ValueError as error:
                raise ValueError(f'cannot resume training in {self._checkpointer.directory}: {error}') from error

    def prepare(self) -> None:
        """Makes ready to save in the background, which would hold up the first step that does."""
        if self._is_in_background:
            self._checkpointer.prepare(self._variables)

    def save(self, is_at_end: bool = False) -> None:
        """Saves the state, if it is not; at the end, waits until it is.

        Raises:
          OSError: at the end: it cannot be written. Before, that costs a line, and there will be a later one.
        """
        if self.is_saved:
            return
        self.check(is_at_end=True)   # of the checkpoint before
        earlier = [step for step in self._checkpointer.steps() if step < self.step]
        # Whether this step's weights are good shows in the next step. If this step was finite, the newest checkpoint before
        # it is good; otherwise no one knows which of them is.
        spared = earlier if self.num_nonfinite_in_a_row else earlier[-1:]
        save = self._checkpointer.begin if self._is_in_background and not is_at_end else self._checkpointer.save
        self._last_saved = self.step
        facts = self._task.facts(self._source)
        try:
            save(self.step, self._variables, {'position': self.position, 'num_nonfinite': self.num_nonfinite,
                                              'num_nonfinite_in_a_row': self.num_nonfinite_in_a_row, 'num_updates': self.num_updates,
                                              'params': self._params_text, **({'task': facts} if facts else {})}, spared)
        except OSError as error:
            if is_at_end:
                raise
            self._say_unsaved(error)

    def check(self, is_at_end: bool = False) -> None:
        """Shows what went wrong with the checkpoint that is being written; at the end of things, waits for it."""
        try:
            (self._checkpointer.wait if is_at_end else self._checkpointer.check)()
        except OSError as error:
            self._say_unsaved(error)

    def _say_unsaved(self, error: OSError) -> None:
        self._last_saved = -1
        self._say(f'step {self.step}: {error} The training goes on.')
