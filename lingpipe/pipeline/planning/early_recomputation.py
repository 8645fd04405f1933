"""Early recomputation: a device that waits for a gradient repeats the forward meanwhile.

A backward with recomputation first runs its cell's forward again, for which it needs no gradient
(arXiv 1811.06965, section 2.3; torchgpipe does it). Where the device would be idle before such a B,
an R is put directly before it. Nothing is held longer than the B itself holds it, and no slot
starts later. What R hands to B goes through memory, so nowhere else is it worth a slot of its own.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lingpipe.pipeline.planning.cell_times import CellTimes
from lingpipe.pipeline.planning.dependencies import Edges
from lingpipe.pipeline.planning.playing import backwards_that_wait
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
    def early_of(slot: Slot) -> tuple[float, float] | None:
        """The seconds of the R of a slot, and of the slot after it; None if it has no R."""
        has_none = (slot.kind != 'B' or not times.repeat[slot.cell] or schedule.is_fused(slot)
                    or schedule.is_recomputed_early(slot))
        if has_none:
            return None
        after_r = times.of_task(slot.cell, f'{schedule.task_kind(slot)}_after_R')
        return times.of_task(slot.cell, 'R'), after_r

    # Where an R lets a B end earlier, its device may have to wait for the next.
    waiting = backwards_that_wait(schedule, times.of(schedule), early_of, edges, delay)
    if not waiting:
        return schedule
    return replace(schedule, devices=tuple(
        tuple(one for slot in slots
              for one in ((slot._replace(kind='R'), slot) if slot in waiting else (slot,)))
        for slots in schedule.devices))
