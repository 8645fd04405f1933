"""Skipped steps: what is reported of them, and when they make a run fail.

A step is skipped if its loss or gradient is not finite, or if the weights of its examples add up
to 0.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from lingpipe.training.step_counts import StepCounts


class NonFiniteError(ArithmeticError):
    """Too many steps in a row, or all of a run, had a loss or gradient that is not finite."""


@dataclasses.dataclass(frozen=True)
class SkippedSteps:
    """How many steps of a run may be skipped.

    Attributes:
      num_steps: of the whole run. One of them, at least, must update something.
      max_nonfinite_in_a_row: so many steps in a row that are not finite end the run.
    """
    num_steps: int
    max_nonfinite_in_a_row: int

    def nonfinite_failure(self, counts: StepCounts) -> str:
        """Says why steps that were not finite have made a run fail; '' if it goes on.

        Args:
          counts: after a step that was not finite.
        """
        if counts.num_nonfinite_in_a_row >= self.max_nonfinite_in_a_row:
            return f'{self.max_nonfinite_in_a_row} steps in a row were not finite'
        return 'no step of this run was finite' if self._has_failed(counts) else ''

    def check_weight(self, counts: StepCounts) -> None:
        """Raises ValueError if no step of a run that is at its end has updated anything.

        Args:
          counts: after a step that was finite.
        """
        if counts.has_no_weight and self._has_failed(counts):
            raise ValueError(
                f'no step of this run updated anything: the weights of the examples of step '
                f'{counts.step} add up to 0; look at the weights that train_input gives.')

    def _has_failed(self, counts: StepCounts) -> bool:
        return counts.step >= self.num_steps and not counts.num_updates


def numbers_text(results: Mapping[str, float]) -> str:
    """The numbers of a step that was not finite."""
    return f'loss {results["loss"]:g} and gradient norm {results["gradient_norm"]:g}'


def skipped_text(before: StepCounts, after: StepCounts, results: Mapping[str, float]) -> str:
    """A line about a skipped step.

    It is '' if the step was not skipped, or if the line of an earlier step has said it already.
    """
    if not results['is_finite']:
        return (f'step {after.step} is skipped: {numbers_text(results)} '
                f'({after.num_nonfinite_in_a_row} in a row)')
    if after.has_no_weight and not before.has_no_weight:
        return (f'step {after.step} is skipped, and so are those after it that are alike: the '
                f'weights of its examples add up to 0')
    return ''
