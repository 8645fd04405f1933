"""Candidate: a plan of one choice, what its step takes, and what keeps it from being faster."""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable, Iterable, Iterator

from lingpipe.pipeline.planning.plan import Plan
from lingpipe.pipeline.planning.search_space import Choice
from lingpipe.pipeline.planning.step_forecast import StepForecast


@dataclasses.dataclass(frozen=True, eq=False)
class Candidate:
    """A plan, and what its step takes, in seconds.

    Attributes:
      choice: what was chosen.
      plan: its costs are seconds.
      step: the forecast of a step.
      work_s: what a device would take for these micro-batches, if it had all memory.
      one_device_s: a whole step of such a device, with micro-batches of the best size.
      unmoved_s: a step with the cuts of the partitioner, if the plan has others.
    """
    choice: Choice
    plan: Plan
    step: StepForecast
    work_s: float
    one_device_s: float
    unmoved_s: float | None = None

    @property
    def step_s(self) -> float:
        """Seconds of one update."""
        return self.step.step_s

    @property
    def moved_gain(self) -> float:
        """By how much the step is shorter since cuts were moved, as a share, 0 to 1."""
        return 0.0 if self.unmoved_s is None else 1 - self.step_s / self.unmoved_s

    @property
    def speed_up(self) -> float:
        """How much faster it is than one device with memory enough, which repeats nothing."""
        return self.one_device_s / self.step_s

    @property
    def bubble_share(self) -> float:
        """How much of the time of its devices they wait, 0 to 1."""
        return self.step.bubble_share

    @property
    def num_devices(self) -> int:
        """How many devices all replicas have together."""
        return self.choice.num_replicas * len(self.plan.schedule.devices)

    @functools.cached_property
    def peak_bytes(self) -> float:
        """The most that any device holds."""
        return max(self.plan.peak_bytes().values())

    @functools.cached_property
    def temporary_bytes(self) -> float:
        """The most that any device needs besides, while a layer runs."""
        return max(self.plan.temporary_bytes().values())

    @functools.cached_property
    def waiting_bytes(self) -> float:
        """The most bytes that have been sent to a device at a time and are not yet read."""
        return max(self.plan.waiting_bytes().values())

    @functools.cached_property
    def losses(self) -> dict[str, float]:
        """What keeps the step from being the work divided by the devices -> seconds, most first."""
        loads: dict[int, float] = {}
        for slot, (start, end) in self.step.simulation.spans.items():
            device = self.plan.schedule.device_of[slot]
            loads[device] = loads.get(device, 0.0) + end - start
        mean_s, most_s = sum(loads.values()) / len(loads), max(loads.values())
        share_s = self.work_s / self.num_devices
        losses = {
            'recomputation': mean_s - share_s,
            'imbalance': most_s - mean_s,
            'links': self.step.links_s,
            'bubble': self.step.slots_s - self.step.links_s - most_s,
            'overhead': self.step.overhead_s,
            'replicas': self.step.replicas_s,
            'update': self.step.update_s,
        }
        return dict(sorted(losses.items(), key=lambda item: -item[1]))

    @property
    def limited_by(self) -> str:
        """The largest loss; 'work' if none takes a fiftieth of the step."""
        name, seconds = next(iter(self.losses.items()))
        return name if seconds > 0.02 * self.step_s else 'work'


def distinct(candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """Yields every plan once, as the candidate of the first choice that gives it."""
    seen: set[Hashable] = set()
    for candidate in candidates:
        choice, plan = candidate.choice, candidate.plan
        what = (choice.num_parts, plan.placement.devices, plan.partition.spans,
                plan.schedule.devices, tuple(plan.forecast.footprints))
        if what not in seen:
            seen.add(what)
            yield candidate
