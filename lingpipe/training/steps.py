"""Steps: one update after the other, watched, and timed where a timeline is asked for."""
from __future__ import annotations

import os
import time
from collections.abc import Iterator

import numpy as np

from lingpipe.input import InputMeter
from lingpipe.input.unread_batch import waited_s
from lingpipe.layers import nested
from lingpipe.pipeline.execution.bad_ids import BadIdError
from lingpipe.pipeline.planning.breakdown import StepTimes
from lingpipe.training.reporting.run_report import TENSORBOARD
from lingpipe.training.reporting.timeline import TimelineReport, write_report
from lingpipe.training.run import Run
from lingpipe.training.slow_steps import SlowSearch
from lingpipe.training.timed_steps import TimedSteps
from lingpipe.training.training_batches import Batch, TrainingBatches

NUM_UNBOUNDED_STEPS = 4  # Untimed steps of a run without a time limit: the first traces the graph.


class InputEndedError(ValueError):
    """train_input has no mini-batch for a step."""


class Steps:
    """Makes the steps of a run.

    Attributes:
      timeline: of the timed steps, once they are made; None before, or if none are.
    """

    def __init__(self, run: Run, batches: TrainingBatches, timed: TimedSteps):
        """
        Args:
          run: what is trained.
          batches: name an example that is at fault.
          timed: which steps are timed.
        """
        self._run, self._batches, self._timed = run, batches, timed
        self._num_batches = run.experiment.params.task.learner.accumulate
        self._num_untimed_steps = 0   # in this process
        self._slow_search = SlowSearch(run)
        self.timeline: TimelineReport | None = None

    def make(self, step: int,
             batches: InputMeter[Batch]) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        """Makes one step, and returns its numbers by name, and the gradients that hooks want.

        Args:
          step: number of steps before it.
          batches: gives as many mini-batches as the learner accumulates.

        Raises:
          InputEndedError: there are not so many left.
          ValueError: an example is at fault.
        """
        number = step + 1
        is_timed = self._timed.has(number) or self._slow_search.has(number)
        is_bounded = self._num_untimed_steps >= NUM_UNBOUNDED_STEPS and not is_timed
        self._run.site.begin(f'step {number}', is_bounded)
        start_s = time.perf_counter()
        try:
            results, gradients = self._update(step, batches, is_timed)
        except BadIdError:
            self._batches.check_update(step)   # It names the example of the data.
            raise
        self._num_untimed_steps += not is_timed
        if is_bounded:
            self._slow_search.look(number, time.perf_counter() - start_s)
        return results, gradients

    def _update(self, step: int, batches: InputMeter[Batch],
                is_timed: bool) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        """Makes one update from as many mini-batches as the learner accumulates."""
        program, num_batches = self._run.program, self._num_batches
        for index in range(num_batches):
            start_s = time.perf_counter()
            batch = self._next(step, batches)
            input_s = time.perf_counter() - start_s
            if step == index == 0:
                with self._run.report.optional(TENSORBOARD, step):
                    images = self._run.experiment.task.images(dict(batch))
                    self._run.report.summaries['train'].images(0, images)
            if not program.has_traced(batch):
                self._run.site.begin(f'step {step + 1}')   # again, and without a limit
            if index < num_batches - 1:
                program.accumulate(batch, step, index)
                batches.add_wait(waited_s(batch))

        call = batch, step, num_batches - 1, self._run.hooks.want_gradients(step + 1)
        if is_timed:
            results, times = program.timed_step(*call)
            self._add_times(step + 1, times.with_input(input_s, waited_s(batch)))
        else:
            results = program.train_step(*call)
        batches.add_wait(waited_s(batch))
        results = nested.map_leaves(lambda value: value.numpy(), dict(results))
        gradients = results.pop('gradients', {})
        return {name: value.item() for name, value in results.items()}, gradients

    def _add_times(self, number: int, times: StepTimes) -> None:
        """Adds the times of a timed step, and shows what they say after the last one."""
        if self._timed.has(number):
            self._timed.add(times)
            if number == self._timed.last_step:
                with self._run.report.optional('the timeline', number - 1):
                    self._draw_timeline(number)
        if self._slow_search.has(number):
            self._slow_search.add(number, times)

    def _next(self, step: int, batches: Iterator[Batch]) -> Batch:
        try:
            return next(batches)
        except StopIteration:
            raise InputEndedError(
                f'train_input ends in step {step + 1} of '
                f'{self._run.experiment.params.train.num_steps}; let it repeat '
                f'(train_input.num_epochs=none), or lower train.num_steps.') from None

    def _draw_timeline(self, step: int) -> None:
        """Writes and shows the timeline of the measured steps."""
        report = write_report(os.path.join(self._run.logdir, 'timeline'), step,
                              self._run.program.plan, self._timed.measured)
        self.timeline = report
        self._run.report.show_timeline(step, report)
