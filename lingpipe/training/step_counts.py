"""Step counts: how far a run has come, and how many of its steps updated nothing."""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class StepCounts:
    """How far a run has come, the parts before it was resumed included.

    Attributes:
      step: number of steps made. A step that updated nothing counts too, so that the position in
        the input and all seeds follow from it.
      num_nonfinite: steps whose loss or gradient was not finite.
      num_nonfinite_in_a_row: those of them that were the last.
      num_updates: steps that updated the weights.
      has_no_weight: whether the weights of the examples of the last finite step of this process
        added up to 0.
    """
    step: int = 0
    num_nonfinite: int = 0
    num_nonfinite_in_a_row: int = 0
    num_updates: int = 0
    has_no_weight: bool = False

    def after(self, results: Mapping[str, float]) -> StepCounts:
        """The counts after one more step with these results."""
        if not results['is_finite']:
            return dataclasses.replace(
                self, step=self.step + 1, num_nonfinite=self.num_nonfinite + 1,
                num_nonfinite_in_a_row=self.num_nonfinite_in_a_row + 1)
        has_no_weight = results['weight'] == 0
        return dataclasses.replace(
            self, step=self.step + 1, num_nonfinite_in_a_row=0,
            num_updates=self.num_updates + (not has_no_weight), has_no_weight=has_no_weight)
