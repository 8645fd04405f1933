"""Early recomputation: a device that waits for a gradient repeats the forward meanwhile.

A backward with recomputation first runs its cell's forward again, for which it needs no gradient
(arXiv 1811.06965, section 2.3; torchgpipe does it). Where the device would be idle before such a B,
an R is put directly before it. Nothing is held longer than the B itself holds it, and no slot
starts later. What R hands to B goes through memory, so nowhere else is it worth a slot of its own.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from lingpipe.pipeline.planning.cell_times import CellTimes
from lingpipe.pipeline.planning.dependencies import Edges, play_with_delays
from lingpipe.pipeline.planning.schedule import Schedule, Slot

Delay = Callable[[int, int], float]


def recompute_early(schedule: Schedule, times: CellTimes, edges: Edges,
                    delay: Delay = lambda sender, receiver: 0.0) -> Schedule:
    """Returns the schedule with an R before each B that recomputes and that its device waits for.

    Args:
      schedule: a valid one.
      times: of its slots; cells whose `repeat` is 0 recompute nothing.
      edges: pairs (maker, reader).
      delay: seconds from one cell to another on another device.
    """
    while any(times.repeat):
        # Where an R lets a B end earlier, its device may have to wait for the next.
        before, schedule = schedule, _repeated_in_gaps(schedule, times, edges, delay)
        if schedule == before:
            break
    return schedule


def _repeated_in_gaps(schedule: Schedule, times: CellTimes, edges: Edges, delay: Delay) -> Schedule:
    """The schedule with an R in every gap before a B that recomputes and has none."""
    spans = play_with_delays(schedule, times.of(schedule), edges, delay)

    def with_repeats(slots: tuple[Slot, ...]) -> Iterator[Slot]:
        """The slots of a device, with those that are new."""
        free_at = 0.0
        for slot in slots:
            recomputes = (slot.kind == 'B' and times.repeat[slot.cell] > 0
                          and not schedule.is_fused(slot)
                          and not schedule.is_recomputed_early(slot))
            if recomputes and spans[slot][0] > free_at:
                yield slot._replace(kind='R')
            yield slot
            free_at = spans[slot][1]

    return replace(schedule, devices=tuple(tuple(with_repeats(slots))
                                           for slots in schedule.devices))
