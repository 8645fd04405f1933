"""Splitting: which backwards of a schedule are worth splitting.

What B hands over to W goes through memory, so a backward is split only where that helps: where its
W fills a gap, or where another device would wait for the gradients of the inputs. Elsewhere B and W
become one, which changes no order of sums and holds no more.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from lingpipe.pipeline.planning.cell_times import CellTimes
from lingpipe.pipeline.planning.dependencies import Edges, Span, dependency_graph, play
from lingpipe.pipeline.planning.schedule import Schedule, Slot

Delay = Callable[[int, int], float]


def split_where_it_helps(schedule: Schedule, times: CellTimes, edges: Edges,
                         delay: Delay = lambda sender, receiver: 0.0) -> Schedule:
    """Returns the schedule with fewer W; its step takes no longer.

    Backwards become whole

      * where W takes no time, as in a cell whose weights are frozen, or there is but one device;
      * in a cell whose B nobody waits for, the first with a backward, if that costs nothing;
      * where W follows its B directly, if nobody uses what B gives before W has ended.

    Args:
      schedule: a valid one.
      times: of its slots.
      edges: pairs (maker, reader).
      delay: seconds from one cell to another on another device.
    """
    if not any(slot.kind == 'W' for slots in schedule.devices for slot in slots):
        return schedule

    is_alone = len(schedule.devices) == 1   # Nobody waits for a device that is.
    for k in sorted(schedule.backward_cells):
        if is_alone or not times.weight[k]:
            schedule = _whole_at_b(schedule, k)
    awaited = {reader for maker, reader in edges if maker in schedule.backward_cells}
    split_cells = {slot.cell for slots in schedule.devices for slot in slots if slot.kind == 'W'}
    for k in sorted(split_cells - awaited):
        candidates = [_whole_at_b(schedule, k), _whole_at_w(schedule, k), schedule]
        schedule = min(candidates, key=lambda one: _step_s(one, times, edges, delay))
    return _whole_where_w_follows(schedule, times, edges, delay)


def _whole_at_b(schedule: Schedule, cell: int) -> Schedule:
    """The schedule with all backwards of a cell whole, each where its B is."""
    return replace(schedule, devices=tuple(
        tuple(slot for slot in slots if (slot.kind, slot.cell) != ('W', cell))
        for slots in schedule.devices))


def _whole_at_w(schedule: Schedule, cell: int) -> Schedule:
    """The schedule with all backwards of a cell whole, those with a W where that is."""
    def whole(slots: tuple[Slot, ...]) -> Iterator[Slot]:
        for slot in slots:
            if slot.cell == cell and slot.kind == 'W':
                yield slot._replace(kind='B')
            elif slot.cell != cell or not schedule.is_split(slot):
                yield slot

    return replace(schedule, devices=tuple(tuple(whole(slots)) for slots in schedule.devices))


def _whole_where_w_follows(schedule: Schedule, times: CellTimes, edges: Edges,
                           delay: Delay) -> Schedule:
    """The schedule without the W that directly follow a B whose gradients nobody uses so soon.

    No slot starts later than before: the B ends when its W would have, or earlier.
    """
    spans = _spans(schedule, times, edges, delay)
    readers: dict[Slot, list[Slot]] = {}
    for slot, needs in dependency_graph(schedule, edges).items():
        for need in needs:
            readers.setdefault(need, []).append(slot)

    def is_used_before(backward: Slot, end: float) -> bool:
        """Whether a slot other than its own W starts before what is made at `end` is there."""
        return any(spans[reader][0] < _arrival(schedule, delay, backward, reader, end)
                   for reader in readers[backward] if reader.kind != 'W')

    def kept(slots: tuple[Slot, ...]) -> Iterator[Slot]:
        """The slots of a device that remain."""
        before: Slot | None = None
        for slot in slots:
            is_needless = False
            if slot.kind == 'W' and before == slot._replace(kind='B'):
                whole_end = spans[before][0] + times.of_task(
                    slot.cell, schedule.task_kind(before).replace('_split', ''))
                is_needless = not is_used_before(before, whole_end)
            if not is_needless:
                yield slot
            before = slot

    return replace(schedule, devices=tuple(tuple(kept(slots)) for slots in schedule.devices))


def _step_s(schedule: Schedule, times: CellTimes, edges: Edges, delay: Delay) -> float:
    return max(end for _, end in _spans(schedule, times, edges, delay).values())


def _spans(schedule: Schedule, times: CellTimes, edges: Edges, delay: Delay) -> dict[Slot, Span]:
    return play(schedule, times.of(schedule), edges,
                lambda maker, reader, end: _arrival(schedule, delay, maker, reader, end))


def _arrival(schedule: Schedule, delay: Delay, maker: Slot, reader: Slot, end: float) -> float:
    is_sent = schedule.device_of[maker] != schedule.device_of[reader]
    return end + (delay(maker.cell, reader.cell) if is_sent else 0.0)
