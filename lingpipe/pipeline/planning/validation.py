"""Validation: proves that a schedule can run, whoever made it."""

import functools

from lingpipe.pipeline.planning.dependencies import Edges
from lingpipe.pipeline.planning.playing import refuse_deadlock
from lingpipe.pipeline.planning.schedule import (
    Schedule,
    Slot,
    check_backward_cells,
    check_sizes,
)
from lingpipe.wording.counts import counted


def validate(schedule: Schedule, edges: Edges | None = None) -> None:
    """Proves that the schedule is complete, keeps cells on one device, and can run in its order.

    Args:
      schedule: any schedule, of schedules.py or made by hand.
      edges: pairs (maker, reader), skip connections included; the chain by default.

    Raises:
      ValueError: names the first slot that is missing, doubled, unexpected, on another device than
        its cell, out of order or stuck.
    """
    _validate_slots(schedule)
    refuse_deadlock(schedule, edges)


@functools.lru_cache(maxsize=64)
def _validate_slots(schedule: Schedule) -> None:
    """Proves what does not depend on edges; once for a schedule that is asked about again."""
    check_sizes(schedule.num_cells, schedule.num_micro_batches)
    check_backward_cells(schedule.backward_cells, schedule.num_cells)
    last = schedule.num_cells - 1
    if schedule.backward_cells and last not in schedule.backward_cells:
        raise ValueError(f'backward_cells lacks the last cell, {last}, whose B computes the loss; '
                         'add it.')
    _check_complete(schedule)
    _check_ascending(schedule)


def _check_complete(schedule: Schedule) -> None:
    """Every slot is there once, on the device of its cell, and there is no other."""
    name = f'schedule {schedule.name!r}'
    expected = [slot for k in range(schedule.num_cells) for slot in schedule.slots_of(k)]
    known = set(expected)
    seen: set[Slot] = set()
    device_of_cell: dict[int, int] = {}
    for device, slots in enumerate(schedule.devices):
        for slot in slots:
            if slot not in known:
                raise ValueError(_why_unexpected(slot, schedule))
            if slot in seen:
                raise ValueError(f'{name} runs {slot} twice, the second time on device {device}; '
                                 'run every slot once.')
            home = device_of_cell.setdefault(slot.cell, device)
            if home != device:
                raise ValueError(f'{name} runs {slot} on device {device}, but its cell is on '
                                 f'device {home}; keep a cell on one device.')
            seen.add(slot)
    for slot in expected:
        if slot not in seen:
            raise ValueError(f'{name} lacks {slot}; run every slot once.')


def _check_ascending(schedule: Schedule) -> None:
    """The forwards of each cell, and what adds up its gradients, ascend in micro-batches."""
    next_forward = [0] * schedule.num_cells
    next_sum = [0] * schedule.num_cells
    for slot in (slot for slots in schedule.devices for slot in slots):
        if schedule.runs_forward(slot):
            _check_next(schedule, slot, next_forward,
                        'forwards run in ascending order, so that what they give out, such as '
                        'moments, is always merged in the same one')
        if schedule.adds_gradients(slot):
            _check_next(schedule, slot, next_sum,
                        'backwards run in ascending order, so that gradients are always summed '
                        'in the same one')


def _check_next(schedule: Schedule, slot: Slot, next_of_cell: list[int], rule: str) -> None:
    """Raises ValueError unless the slot is of the next micro-batch, which it then counts up."""
    expected = next_of_cell[slot.cell]
    if slot.micro_batch != expected:
        raise ValueError(f'schedule {schedule.name!r} runs {slot} before micro-batch {expected}; '
                         f'{rule}.')
    next_of_cell[slot.cell] += 1


def _why_unexpected(slot: Slot, schedule: Schedule) -> str:
    """Why a slot is none of the schedule's, and what to do about it."""
    why = (f'there are {counted(schedule.num_cells, "cell")} and '
           f'{counted(schedule.num_micro_batches, "micro-batch")}, of kinds F, B, W and R')
    why_not_kind = {
        'F': 'is the last, whose B is its F too',
        'B': 'is not in backward_cells',
        'W': 'is not in backward_cells',
        'R': 'is the last, which never recomputes' if slot.cell == schedule.num_cells - 1
             else 'is not in backward_cells',
    }
    is_inside = (0 <= slot.cell < schedule.num_cells and
                 0 <= slot.micro_batch < schedule.num_micro_batches)
    if is_inside and slot.kind in why_not_kind:
        why = f'cell {slot.cell} {why_not_kind[slot.kind]}'
    return f'schedule {schedule.name!r} has no place for {slot}: {why}; remove it.'
