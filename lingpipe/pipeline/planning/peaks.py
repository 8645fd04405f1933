"""Peaks: the most bytes that the devices of a schedule hold at any time.

What a cell holds and when is said at the head of memory.py.
"""
from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lingpipe.pipeline.planning.memory import Footprint
    from lingpipe.pipeline.planning.placement import Place, Placement
    from lingpipe.pipeline.planning.schedule import Schedule, Slot


def peaks(schedule: Schedule, footprints: Sequence[Footprint],
          cells: Sequence[int] | None = None) -> list[float]:
    """The most bytes that the cells of each list of a schedule hold together at any time.

    A micro-batch is live in a cell from the start of its F to the end of its B. In the last cell,
    whose B is F too, it is live from the start of that, and in a cell without backward while its
    only slot runs. What an R makes again stays until the B ends, and what a split B hands over
    until the W ends. Slots of a list run one by one, so their order is all that matters.

    Args:
      schedule: any valid schedule.
      footprints: [K].
      cells: only these count; all by default.

    Returns:
      Bytes, for each list of schedule.devices.
    """
    counted = set(range(schedule.num_cells) if cells is None else cells)
    changes: dict[tuple[str, int], Change] = {}   # (compiled task, cell) -> that of its slots
    peaks_of_places = []
    for device, listed in enumerate(schedule.devices):
        cells_of_list = schedule.cells_of_lists[device]
        if counted.isdisjoint(cells_of_list):
            peaks_of_places.append(0.0)
            continue
        tasks = schedule.tasks_of_lists[device]
        slots = list(zip(listed, tasks, strict=True))
        if not counted >= cells_of_list:
            slots = [(slot, task) for slot, task in slots if task[1] in counted]
        last = {k: i for i, (_, (_, k)) in enumerate(slots)}
        peak = live = received = 0.0
        for i, (slot, task) in enumerate(slots):
            if task not in changes:
                changes[task] = change(slot, schedule, footprints[slot.cell])
            before, during, after = changes[task]
            live += before
            if live + during + received > peak:
                peak = live + during + received
            live += after
            if i == last[task[1]]:
                received += footprints[task[1]].received
        peaks_of_places.append(sum(footprints[k].fixed for k in last) + max(peak, received))
    return peaks_of_places


class Change(NamedTuple):
    """The bytes that a slot takes when it begins, takes besides while it runs, and gives back."""
    before: float
    during: float
    after: float


def change(slot: Slot, schedule: Schedule, footprint: Footprint) -> Change:
    """The change that a slot makes to the bytes of its device, given what its cell holds."""
    before = footprint.held * _begins(slot, schedule)
    if slot.kind == 'R':
        return Change(footprint.working, 0, 0)
    if slot.kind == 'F':
        return Change(before, 0, -footprint.held * (slot.cell not in schedule.backward_cells))

    is_last = slot.cell == schedule.num_cells - 1
    working = 0 if schedule.is_recomputed_early(slot) else footprint.working
    live = footprint.held + footprint.working - working
    handed = footprint.handed
    if not footprint.gives_gradients:   # B leaves all to W, but the last cell's runs the forward.
        handed = footprint.residual if is_last else live

    if slot.kind == 'W':
        works_here = not footprint.gives_gradients and not is_last
        return Change(0, working if works_here else 0, -handed)
    if not schedule.is_split(slot):
        return Change(before, working, -live)
    if footprint.gives_gradients:
        return Change(before, working + footprint.gradients, handed - live)
    return Change(before, working if is_last else 0, handed - live)


def peaks_of_devices(schedule: Schedule, placement: Placement, footprints: Sequence[Footprint],
                     counted: Collection[Place] | None = None) -> dict[Place, float]:
    """The most bytes that each device holds at any time, of all cells of all replicas.

    Args:
      schedule: of each replica.
      placement: which cell is on which device.
      footprints: [K].
      counted: only these devices; all by default.
    """
    bytes_at: dict[Place, float] = {}
    for places in placement.places:
        for place in dict.fromkeys(places):
            if counted is not None and place not in counted:
                continue
            cells = [k for k, other in enumerate(places) if other == place]
            of_replica = sum(peaks(schedule, footprints, cells))
            bytes_at[place] = bytes_at.get(place, 0.0) + of_replica
    return bytes_at


@functools.lru_cache(maxsize=128)
def most_live(schedule: Schedule) -> tuple[int, ...]:
    """[K] the most micro-batches of each cell that are live at once."""
    live, most = [0] * schedule.num_cells, [0] * schedule.num_cells
    for slots in schedule.devices:
        for slot in slots:
            live[slot.cell] += _begins(slot, schedule)
            most[slot.cell] = max(most[slot.cell], live[slot.cell])
            live[slot.cell] -= _ends(slot, schedule)
    return tuple(most)


def _begins(slot: Slot, schedule: Schedule) -> bool:
    return schedule.runs_forward(slot)


def _ends(slot: Slot, schedule: Schedule) -> bool:
    return schedule.adds_gradients(slot) or slot.cell not in schedule.backward_cells
