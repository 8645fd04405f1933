"""Splitting: which backwards of a schedule are worth splitting.

What B hands over to W goes through memory, so a backward is split only where that helps: where its
W fills a gap, or where another device would wait for the gradients of the inputs. Elsewhere B and W
become one, which changes no order of sums and holds no more.

What becomes whole does not depend on times, so schedules that were made are remembered: the planner
asks for the same ones for many partitions, and each remembers its turns (dependencies.py).
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace

from lingpipe.pipeline.planning.cell_times import CellTimes
from lingpipe.pipeline.planning.dependencies import Edges
from lingpipe.pipeline.planning.playing import Span, play_with_delays, step_with_delays
from lingpipe.pipeline.planning.schedule import Schedule, Slot

Delay = Callable[[int, int], float]

# How many of the first and of the last micro-batches may suffice, those with fewest W first.
ENDS_TRIED = ((0, 1), (1, 1), (0, 2), (1, 2), (2, 2))
MOST_SLOTS_TRIED = 400
_REMEMBERED = 128   # schedules of each kind: 'auto' asks for up to 70 for every partition


def split_where_it_helps(schedule: Schedule, times: CellTimes, edges: Edges,
                         delay: Delay = lambda sender, receiver: 0.0) -> Schedule:
    """Returns the schedule with fewer W; its step takes no longer.

    Backwards become whole

      * where W takes no time, as in a cell whose weights are frozen, or there is but one device;
      * in a cell whose B nobody waits for, the first with a backward, if that costs nothing;
      * in the middle of a step, where few at its ends fill the gaps as well;
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
    unsplit = frozenset(k for k in schedule.backward_cells if is_alone or not times.weight[k])
    if unsplit:
        schedule = _whole_at_b(schedule, unsplit)
    awaited = {reader for maker, reader in edges if maker in schedule.backward_cells}
    split_cells = {slot.cell for slots in schedule.devices for slot in slots if slot.kind == 'W'}
    for k in sorted(split_cells - awaited):
        candidates = [_whole_at_b(schedule, frozenset({k})), _whole_at_w(schedule, k), schedule]
        schedule = min(candidates, key=lambda one: _step_s(one, times, edges, delay))
    schedule = _whole_in_the_middle(schedule, times, edges, delay)
    return _whole_where_w_follows(schedule, times, edges, delay)


@functools.lru_cache(maxsize=_REMEMBERED)
def whole_everywhere(schedule: Schedule) -> Schedule:
    """The schedule without W: each backward is whole, where its B is."""
    return replace(schedule, devices=tuple(
        tuple(slot for slot in slots if slot.kind != 'W') for slots in schedule.devices))


@functools.lru_cache(maxsize=_REMEMBERED)
def _whole_at_b(schedule: Schedule, cells: frozenset[int]) -> Schedule:
    """The schedule with all backwards of some cells whole, each where its B is."""
    return replace(schedule, devices=tuple(
        tuple(slot for slot in slots if slot.kind != 'W' or slot.cell not in cells)
        for slots in schedule.devices))


@functools.lru_cache(maxsize=_REMEMBERED)
def _whole_at_w(schedule: Schedule, cell: int) -> Schedule:
    """The schedule with all backwards of a cell whole, those with a W where that is."""
    def whole(slots: tuple[Slot, ...]) -> Iterator[Slot]:
        for slot in slots:
            if slot.cell == cell and slot.kind == 'W':
                yield slot._replace(kind='B')
            elif slot.cell != cell or not schedule.is_split(slot):
                yield slot

    return replace(schedule, devices=tuple(tuple(whole(slots)) for slots in schedule.devices))


def _whole_in_the_middle(schedule: Schedule, times: CellTimes, edges: Edges,
                         delay: Delay) -> Schedule:
    """The schedule in which only the first and last micro-batches are split, if it is as fast.

    With many slots it never is, so that they are not tried.
    """
    if len(schedule.device_of) > MOST_SLOTS_TRIED:
        return schedule
    longest_s = _step_s(schedule, times, edges, delay) * (1 + 1e-9)
    for num_first, num_last in ENDS_TRIED:
        middle = range(num_first, schedule.num_micro_batches - num_last)
        fewer = _whole_in(schedule, middle)
        if fewer is not None and _step_s(fewer, times, edges, delay) <= longest_s:
            return fewer
    return schedule


@functools.lru_cache(maxsize=_REMEMBERED)
def _whole_in(schedule: Schedule, micro_batches: range) -> Schedule | None:
    """The schedule without the W of some micro-batches, each of whose backwards is where its B is.

    Sums ascend, so the W of earlier micro-batches go before them. If their B come later, there is
    no such schedule.
    """
    devices = []
    for slots in schedule.devices:
        weights = {slot for slot in slots if slot.kind == 'W'}
        order: dict[Slot, None] = {}
        for slot in slots:
            if schedule.is_split(slot) and slot.micro_batch in micro_batches:
                weights.remove(slot._replace(kind='W'))
                earlier = sorted(weight for weight in weights - order.keys()
                                 if weight.cell == slot.cell
                                 and weight.micro_batch < slot.micro_batch)
                if any(weight._replace(kind='B') not in order for weight in earlier):
                    return None
                order.update(dict.fromkeys(earlier))
            if slot.kind != 'W' or slot in weights:
                order.setdefault(slot)
        devices.append(tuple(order))
    return replace(schedule, devices=tuple(devices))


def _whole_where_w_follows(schedule: Schedule, times: CellTimes, edges: Edges,
                           delay: Delay) -> Schedule:
    """The schedule without the W that directly follow a B whose gradients nobody uses so soon.

    No slot starts later than before: the B ends when its W would have, or earlier.
    """
    spans = _spans(schedule, times, edges, delay)
    makers: dict[int, list[int]] = {}   # cell -> those with a backward whose values it reads
    for maker, reader in set(edges):
        if maker in schedule.backward_cells:
            makers.setdefault(reader, []).append(maker)

    def is_used_before(backward: Slot, end: float) -> bool:
        """Whether another B that reads its gradients starts before they are there."""
        readers = (backward._replace(cell=maker) for maker in makers.get(backward.cell, ()))
        return any(spans[reader][0] < _arrival(schedule, delay, backward, reader, end)
                   for reader in readers)

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
    return step_with_delays(schedule, times.of(schedule), edges, delay)


def _spans(schedule: Schedule, times: CellTimes, edges: Edges, delay: Delay) -> dict[Slot, Span]:
    return play_with_delays(schedule, times.of(schedule), edges, delay)


def _arrival(schedule: Schedule, delay: Delay, maker: Slot, reader: Slot, end: float) -> float:
    is_sent = schedule.device_of[maker] != schedule.device_of[reader]
    return end + (delay(maker.cell, reader.cell) if is_sent else 0.0)
