"""Step summaries: the numbers of training steps for TensorBoard, and a warning of a slow input."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lingpipe.input import InputMeter
from lingpipe.training.reporting.run_report import TENSORBOARD, RunReport


class StepSummaries:
    """Writes the numbers of a step from time to time, and warns once if steps wait for input."""

    def __init__(self, report: RunReport, every_steps: int, num_steps: int):
        """
        Args:
          report: whose summaries and lines they are.
          every_steps: after how many steps numbers are written again.
          num_steps: the last step, whose numbers are always written.
        """
        self._report, self._every_steps, self._num_steps = report, every_steps, num_steps
        self._has_warned_of_input = False

    def write(self, step: int, results: Mapping[str, float], num_nonfinite: int,
              batches: InputMeter[Any]) -> None:
        """Writes the numbers of a step for TensorBoard, if it is time.

        Args:
          step: the step.
          results: its numbers.
          num_nonfinite: how many steps so far were not finite.
          batches: from which the step took its mini-batches.
        """
        if step % self._every_steps and step not in (1, self._num_steps):
            return
        progress = self._report.progress
        values = {name: value for name, value in results.items() if name != 'is_finite'}
        values['nonfinite_steps'] = num_nonfinite
        if progress.examples_per_s:
            values['examples_per_s'] = progress.examples_per_s
            values['input_wait_share'] = batches.share
        warning = batches.warning()   # of the steps since the last summary
        if warning and not self._has_warned_of_input:
            self._has_warned_of_input = True
            self._report.say(f'step {step}: {warning}')
        with self._report.optional(TENSORBOARD, step):
            self._report.summaries['train'].scalars(step, values)
