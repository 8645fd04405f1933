"""Slow steps: notices that steps have become slower, and names the device that is the cause.

A worker whose machine is hot, shared or half broken slows all others, which wait for it, and
nothing ends (MegaScale, arXiv 2402.15627, section 5, has found many). The obvious way is to stamp
the tasks of every step, which costs time in every step. Here nothing is timed while all is well:
the trainer knows how long steps take. Once they take twice as long as before, the tasks of a few
steps are timed. A device whose tasks alone take longer than a whole step took before has become
slower for certain.
"""
from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from lingpipe.pipeline.planning.breakdown import StepTimes
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.training.run import Run
from lingpipe.training.timed_steps import NUM_TIMED_STEPS, TimedSteps

NUM_STEPS = 20        # whose median is compared
SLOWER = 2.           # so many times as long is slower
_LEAST_S = 0.01       # and so many seconds longer, or a step of a millisecond would often be slower


class SlowSteps:
    """The times of the steps of a process, and whether they have become slower.

    Attributes:
      before_s: the median time of steps before they became slower, in seconds.
      now_s: that of the last steps.
    """

    def __init__(self) -> None:
        self.before_s = self.now_s = 0.
        self._recent_s: list[float] = []
        self._is_slow = False

    def add(self, seconds: float) -> bool:
        """Adds the time of a step; returns whether steps have become slower now.

        They become slower once, until they have been as fast as before again.
        """
        self._recent_s.append(seconds)
        if len(self._recent_s) < NUM_STEPS:
            return False
        self.now_s = statistics.median(self._recent_s)
        self._recent_s.clear()

        is_first = not self.before_s
        is_slow = not is_first and self.now_s > max(SLOWER * self.before_s,
                                                    self.before_s + _LEAST_S)
        has_become_slow = is_slow and not self._is_slow
        self._is_slow = is_slow
        if is_first or self.now_s < self.before_s:
            self.before_s = self.now_s
        return has_become_slow


class SlowSearch:
    """Has steps timed once they have become slower, and logs what is the cause.

    It does so in runs on workers only.
    """

    def __init__(self, run: Run):
        """
        Args:
          run: whose steps they are.
        """
        self._run = run
        self._steps = SlowSteps()
        self._timed = TimedSteps(None)

    def has(self, number: int) -> bool:
        """Whether the step with this number is to be timed."""
        return self._timed.has(number)

    def look(self, number: int, seconds: float) -> None:
        """Looks at the time of a step that was made, and that was not timed by tasks."""
        if not self._run.site.watchdog or not self._steps.add(seconds):
            return
        num_steps = self._run.experiment.params.train.num_steps
        self._timed = TimedSteps(min(number + NUM_TIMED_STEPS, num_steps))

    def add(self, number: int, times: StepTimes) -> None:
        """Adds the times of a timed step; after the last one, logs what they say."""
        self._timed.add(times)
        if number == self._timed.last_step:
            text = cause_text(
                self._steps.before_s, self._steps.now_s, self._timed.measured,
                self._run.program.plan, self._run.experiment.params.task.learner.accumulate,
                self._run.site.name_of)
            self._run.report.say(f'step {number}: {text}')


def cause_text(before_s: float, now_s: float, measured: Sequence[StepTimes], plan: Plan,
               num_batches: int, name_of: Callable[[str], str]) -> str:
    """Returns a sentence that names the devices that have become slower.

    Args:
      before_s, now_s: seconds of a step.
      measured: steps whose tasks were timed; those of the first replica.
      plan: of the steps.
      num_batches: mini-batches of a step, of which one is timed.
      name_of: returns the name of a tf.device string, for people.
    """
    busy_s = [num_batches * statistics.median(step.timeline.busy_s(device) for step in measured)
              for device in range(measured[0].timeline.num_devices)]
    slower = [device for device, seconds in enumerate(busy_s) if seconds > before_s]
    start = (f'steps take {now_s / before_s:.1f} times as long as before ({now_s * 1e3:,.0f} ms, '
             f'not {before_s * 1e3:,.0f})')
    if not slower:
        return (f'{start}, and the tasks are not the cause: those of the slowest device take '
                f'{max(busy_s) * 1e3:,.0f} ms; look at the links, at workers that stand still '
                'between tasks, at the machine of the trainer and at the input')

    def text(device: int) -> str:
        """Names a device, with the time of its tasks."""
        cell = plan.schedule.devices[device][0].cell
        name = name_of(plan.placement.devices[0][cell])
        return f'{name}, whose tasks alone take {busy_s[device] * 1e3:,.0f} ms'

    return f'{start}, because of {" and ".join(map(text, slower))}: look at that machine'
