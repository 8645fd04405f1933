"""Ordering: the order of slots on each device, for a schedule by name or chosen by itself.

`auto` tries every schedule that has a name, and what list scheduling finds from the times of the
cells, of links and from the bytes that a device has left, each with and without early
recomputation. The fastest in the simulator is taken: so no schedule by name is faster. Of those
that are as good as equal it takes the one that holds least.

Devices that share threads (shared_threads.py) fill most of a bubble without W. There a schedule by
name is split only if that is faster even so. One that is made for its memory (v_half, v_min) takes
the order of another in a V if that is faster and holds no more micro-batches, and there is no limit
in bytes: the order of F and B must not depend on times under a limit (least_peaks.py).

What a split B hands over is held until its W. If no partition of a schedule keeps the limit with
any W, planner.py tries all of them once more without (`order_whole`).
"""
from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

from lingpipe.pipeline.planning.early_recomputation import recompute_early
from lingpipe.pipeline.planning.list_scheduling import Policy, Workload, list_schedule
from lingpipe.pipeline.planning.playing import step_with_delays
from lingpipe.pipeline.planning.schedule import Schedule, Slot
from lingpipe.pipeline.planning.schedules import (
    SEVERAL_CELLS_A_DEVICE,
    TRAINING,
    make_schedule,
)
from lingpipe.pipeline.planning.shared_devices import orders_together
from lingpipe.pipeline.planning.shared_threads import MOST_SLOTS, shared_step_s
from lingpipe.pipeline.planning.splitting import split_where_it_helps, whole_everywhere

AS_GOOD = 1.005   # A step that is longer by no more than this factor counts as equally fast.
PROMISING = 1.1   # Fewer W do not make a schedule faster than others by more than this factor.

_REMEMBERED = 64   # schedules that are found without a limit, of each kind

# Schedules that exist for what they hold, and those with which they share a layout.
_OF_LITTLE_MEMORY = ('v_half', 'v_min')
_IN_A_V = ('zb_v', 'v_half', 'v_min')


@dataclasses.dataclass(frozen=True)
class Limit:
    """What devices may hold.

    Attributes:
      held: [K] bytes that a cell holds for a micro-batch from its F on.
      handed: [K] bytes of them that remain from the end of a split B to the end of its W.
      room: [devices] bytes that a device has for these.
      excess_of: how many bytes too many the fullest device holds in a schedule.
    """
    held: Sequence[float]
    handed: Sequence[float]
    room: Sequence[float]
    excess_of: Callable[[Schedule], float]


def order_by_name(name: str, work: Workload, limit: Limit | None = None) -> Schedule:
    """Returns the schedule of a name, with a list for every device.

    Args:
      name: of training; 'auto' is none.
      work: the cells and their devices.
      limit: if the order without it breaks it, and a schedule leaves a choice, those that break it
        least are preferred.
    """
    named = _order_split_everywhere(name, work, None)
    free = _without_limit(name, work)
    if limit is None:
        is_for_memory = work.num_threads is not None and name in _OF_LITTLE_MEMORY
        return _fastest_that_holds_no_more(free, named, work) if is_for_memory else free
    if not limit.excess_of(free):
        return free

    limited = _order_split_everywhere(name, work, limit)
    if limited == named:
        return min(free, named, key=limit.excess_of)
    return _split_where_it_helps(limited, work, limit)


def order_whole(name: str, work: Workload, limit: Limit) -> Schedule:
    """Returns the schedule of a name without a W, which holds less.

    Args:
      name: of training; 'auto' is the fastest of all others.
      work: the cells and their devices.
      limit: schedules that break it least are preferred.
    """
    names = TRAINING if name == 'auto' else (name,)
    schedules = [dataclasses.replace(
        whole_everywhere(_order_split_everywhere(one, work, limit)), name=name) for one in names]
    return _fastest(_closest_to(limit, schedules), work, 1.0)[0]


def _fastest_that_holds_no_more(schedule: Schedule, named: Schedule, work: Workload) -> Schedule:
    """The schedule, or one with another order in a V that holds no more than the named one."""
    others = [whole_everywhere(_order_split_everywhere(other, work, None)) for other in _IN_A_V]
    holding_no_more = [dataclasses.replace(other, name=schedule.name) for other in others
                       if most_held(other) <= most_held(named)]
    return min(_fastest([schedule, *holding_no_more], work, AS_GOOD), key=_traffic)


def order_automatically(work: Workload, limit: Limit | None = None) -> Schedule:
    """Returns the fastest schedule that keeps the limit, or the one that breaks it least.

    If the one that is found without a limit keeps it and is as good, that is taken. One that is
    found with a limit is faster only where cells share a device: their orders are compared before
    it is known which backwards are whole.
    """
    free = _ordered_within(work, None)
    if limit is None:
        return free
    limited = _ordered_within(work, limit)
    if limit.excess_of(free) or step_s(free, work) > AS_GOOD * step_s(limited, work):
        return limited
    return free


def _ordered_within(work: Workload, limit: Limit | None) -> Schedule:
    schedules = [_order_split_everywhere(name, work, limit) for name in TRAINING]
    if limit is not None and work.num_devices < work.num_cells:
        # Fewer W may let an order keep the limit that breaks it with all of them.
        schedules += [order_by_name(name, work, limit) for name in TRAINING]
    schedules += [_listed(work, policy) for policy in _policies(work, limit)]
    schedules = _different(schedules)
    if limit is not None:
        # Fewer W may hold less, so what breaks the limit is judged without them.
        schedules = [_split_where_it_helps(schedule, work, limit) if limit.excess_of(schedule)
                     else schedule for schedule in schedules]
        schedules = _closest_to(limit, schedules)

    schedules = [_split_where_it_helps(schedule, work, limit)
                 for schedule in _promising(schedules, work)]
    repeated = [recompute_early(schedule, work.times, work.edges, work.delay)
                for schedule in schedules]
    schedules += [schedule for schedule in repeated
                  if schedule not in schedules
                  and (limit is None or limit.excess_of(schedule) == 0)]
    return _as_auto(min(_fastest(schedules, work, AS_GOOD), key=_traffic))


def _different(schedules: Sequence[Schedule]) -> list[Schedule]:
    """The first of those that run the same slots on each device, whatever their names are."""
    first_of: dict[tuple[tuple[Slot, ...], ...], Schedule] = {}
    for schedule in schedules:
        first_of.setdefault(schedule.devices, schedule)
    return list(first_of.values())


@functools.lru_cache(maxsize=_REMEMBERED)
def _as_auto(schedule: Schedule) -> Schedule:
    return dataclasses.replace(schedule, name='auto')


def step_s(schedule: Schedule, work: Workload) -> float:
    """How long the schedule takes, with the calls of the device that has most slots.

    Links are as fast for one transfer as for several.
    """
    calls_s = work.slot_s * max(map(len, schedule.devices))
    if work.num_threads is not None and len(schedule.device_of) <= MOST_SLOTS:
        return calls_s + shared_step_s(schedule, work.times, work.edges, work.num_threads)
    return calls_s + step_with_delays(schedule, work.times.of(schedule), work.edges, work.delay)


def most_held(schedule: Schedule) -> int:
    """The most micro-batches that any device holds of all its cells, from F to B or W."""
    most = 0
    for slots in schedule.devices:
        held = 0
        for slot in slots:
            held += schedule.runs_forward(slot) and slot.cell in schedule.backward_cells
            most = max(most, held)
            held -= schedule.adds_gradients(slot)
    return most


def _closest_to(limit: Limit, schedules: Sequence[Schedule]) -> list[Schedule]:
    """Those that keep the limit, or break it least."""
    excess = [limit.excess_of(schedule) for schedule in schedules]
    return [schedule for schedule, bytes_too_many in zip(schedules, excess, strict=True)
            if bytes_too_many == min(excess)]


def _promising(schedules: Sequence[Schedule], work: Workload) -> list[Schedule]:
    """Those that may be the fastest once they are split only where it helps."""
    times = dataclasses.replace(work.times, split=(0.0,) * work.num_cells)
    if times == work.times:
        return _fastest(schedules, work, PROMISING)
    unless_split = dataclasses.replace(work, times=times)
    most_s = PROMISING * min(step_s(schedule, work) for schedule in schedules)
    return [schedule for schedule in schedules if step_s(schedule, unless_split) <= most_s]


def _fastest(schedules: Sequence[Schedule], work: Workload, factor: float) -> list[Schedule]:
    """Those whose step takes at most so many times as long as the fastest."""
    seconds = [step_s(schedule, work) for schedule in schedules]
    return [schedule for schedule, step in zip(schedules, seconds, strict=True)
            if step <= factor * min(seconds)]


def _traffic(schedule: Schedule) -> tuple[int, int]:
    """How many micro-batches are held, and how many slots hand something over to another."""
    return most_held(schedule), sum(slot.kind in 'WR' for slot in schedule.device_of)


def _order_split_everywhere(name: str, work: Workload, limit: Limit | None) -> Schedule:
    """The schedule of a name with all the W that it has."""
    orders = _orders_split_everywhere(name, work)
    if limit is None or len(orders) == 1:
        return orders[0]
    return min(orders, key=limit.excess_of)


# A plan under a limit asks for these several times.

@functools.lru_cache(maxsize=_REMEMBERED)
def _orders_split_everywhere(name: str, work: Workload) -> Sequence[Schedule]:
    """The orders in which devices may run the schedule of a name, the fastest first."""
    if name in SEVERAL_CELLS_A_DEVICE:
        return [make_schedule(name, work.num_cells, work.num_micro_batches, work.backward_cells,
                              work.homes)]
    apart = make_schedule(name, work.num_cells, work.num_micro_batches, work.backward_cells)
    return orders_together(apart, work.homes, work.times.of(apart), work.edges)


@functools.lru_cache(maxsize=_REMEMBERED)
def _without_limit(name: str, work: Workload) -> Schedule:
    return _split_where_it_helps(_order_split_everywhere(name, work, None), work, None)


def _split_where_it_helps(schedule: Schedule, work: Workload, limit: Limit | None) -> Schedule:
    """The schedule with fewer W, unless that breaks the limit."""
    split = split_where_it_helps(schedule, work.times, work.edges, work.delay)
    if work.num_threads is not None:
        split = _whole_if_as_good(split, schedule, work)
    elif work.slot_s:
        split = min(split, whole_everywhere(schedule), key=lambda one: step_s(one, work))
    if limit is None or limit.excess_of(split) <= limit.excess_of(schedule):
        return split
    return schedule


def _whole_if_as_good(split: Schedule, schedule: Schedule, work: Workload) -> Schedule:
    """The schedule without W, unless `split`, which keeps some of them, is faster."""
    whole = whole_everywhere(schedule)
    if whole == split or len(schedule.device_of) > MOST_SLOTS:
        return whole
    return min(_fastest([split, whole], work, AS_GOOD), key=_traffic)


def _listed(work: Workload, policy: Policy) -> Schedule:
    schedule = list_schedule('auto', work, policy)
    assert schedule is not None, 'list scheduling without a given order never gets stuck'
    return schedule


def _policies(work: Workload, limit: Limit | None) -> Iterator[Policy]:
    """Those that are worth trying."""
    num_cells, num_devices = work.num_cells, work.num_devices
    has_shared_devices = num_devices < num_cells
    if limit is not None:
        held, handed = limit.held, limit.handed
        limits = [[share * room for room in limit.room] for share in (1.0, 0.75)]
    else:
        held = handed = [1.0] * num_cells
        cells_per_device = -(-num_cells // num_devices)
        limits = [[float(most)] * num_devices for most in (
            cells_per_device * num_devices, cells_per_device * (2 * num_devices - 1),
            num_cells * work.num_micro_batches)]
    for limits_of_devices, splits in itertools.product(limits, (True, False)):
        for deep_backwards_first in (False, True)[:1 + has_shared_devices]:
            yield Policy(held, handed, limits_of_devices, splits,
                         deep_backwards_first=deep_backwards_first)
