"""Timed steps: the few steps of a run whose tasks are timed; the last of them is drawn."""
from __future__ import annotations

from collections.abc import Sequence

from lingpipe.pipeline.planning.breakdown import StepTimes

NUM_WARM_UP_STEPS = 2    # Steps that are timed and not counted, while the timed graph warms up.
NUM_MEASURED_STEPS = 5   # Timed steps whose median is shown.
NUM_TIMED_STEPS = NUM_WARM_UP_STEPS + NUM_MEASURED_STEPS


class TimedSteps:
    """Collects the times of the timed steps of a process.

    Attributes:
      last_step: the number of the last timed step; None: no step is timed.
    """

    def __init__(self, last_step: int | None):
        self.last_step = last_step
        self._times: list[StepTimes] = []

    def has(self, step: int) -> bool:
        """Whether the step with this number is timed."""
        last = self.last_step or 0
        return last - NUM_TIMED_STEPS < step <= last

    def add(self, times: StepTimes) -> None:
        """Adds the times of one more step."""
        self._times.append(times)

    @property
    def measured(self) -> Sequence[StepTimes]:
        """The times that count; if there are none but those of the warm-up, the last."""
        return self._times[NUM_WARM_UP_STEPS:] or self._times[-1:]


def soon_after(step: int, num_steps: int) -> TimedSteps:
    """The first steps after `step` that are worth timing: the very first ones build graphs."""
    return TimedSteps(min(step + NUM_TIMED_STEPS + 2, num_steps))
