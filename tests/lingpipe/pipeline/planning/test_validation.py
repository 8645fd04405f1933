"""The validator against corrupted schedules."""

import re
from dataclasses import replace

import pytest

from lingpipe.pipeline.planning.schedule import Schedule, Slot
from lingpipe.pipeline.planning.schedules import TRAINING, make_schedule
from lingpipe.pipeline.planning.validation import validate

NAMES = (*TRAINING, 'forward')


def move(schedule, take=None, put=None):
    """Removes the slot `take` from the schedule and inserts `put` = (device, position, slot)."""
    devices = [[slot for slot in slots if slot != take] for slots in schedule.devices]
    if put is not None:
        device, position, slot = put
        devices[device].insert(position, slot)
    return replace(schedule, devices=tuple(map(tuple, devices)))


def refuses(schedule, sentence, edges=None):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        validate(schedule, edges)


@pytest.mark.parametrize('name', NAMES)
def test_every_missing_slot_is_named(name):
    schedule = make_schedule(name, 3, 4)
    for slot in (slot for slot in schedule.device_of if slot.kind != 'W'):
        refuses(move(schedule, take=slot), f'schedule {name!r} lacks {slot}; run every slot once')


@pytest.mark.parametrize('name', NAMES)
def test_every_doubled_slot_is_named(name):
    schedule = make_schedule(name, 3, 4)
    for slot, device in schedule.device_of.items():
        refuses(move(schedule, put=(device, 0, slot)),
                f'runs {slot} twice, the second time on device {device}')


def test_a_slot_on_the_wrong_device_is_named():
    slot = Slot('B', 1, 3)
    refuses(move(make_schedule('gpipe', 3, 4), take=slot, put=(2, 4, slot)),
            'runs B(cell 1, micro-batch 3) on device 2, but its cell is on device 1; keep a cell '
            'on one device',)


@pytest.mark.parametrize(
    'slot, reason',
    [
        (Slot('F', 2, 0), 'cell 2 is the last, whose B is its F too'),
        (Slot('B', 0, 0), 'cell 0 is not in backward_cells'),
        (Slot('W', 0, 0), 'cell 0 is not in backward_cells'),
        (Slot('R', 0, 0), 'cell 0 is not in backward_cells'),
        (Slot('R', 2, 0), 'cell 2 is the last, which never recomputes'),
        (Slot('F', 0, 4), 'there are 3 cells and 4 micro-batches, of kinds F, B, W and R'),
        (Slot('X', 0, 0), 'there are 3 cells and 4 micro-batches, of kinds F, B, W and R'),
    ],
)
def test_a_slot_that_should_not_exist_is_named(slot, reason):
    schedule = make_schedule('gpipe', 3, 4, backward_cells={1, 2})
    refuses(move(schedule, put=(min(slot.cell, 2), 0, slot)),
            f'has no place for {slot}: {reason}; remove it')


def test_a_backward_before_its_forward_is_a_deadlock():
    slot = Slot('B', 0, 0)
    refuses(move(make_schedule('gpipe', 2, 2), take=slot, put=(0, 0, slot)),
            'device 0 waits at B(cell 0, micro-batch 0) for F(cell 0, micro-batch 0), which can '
            'never start; run F(cell 0, micro-batch 0) on device 0 before what waits for it',)


def test_a_deadlock_between_devices_is_named():
    """Each device waits for the other.

    Device 0 has F of micro-batch 1 after B of micro-batch 0, for which device 1 needs that F first.
    """
    late = Schedule(
        'late',
        3,
        2,
        (
            (Slot('F', 0, 0), Slot('B', 0, 0), Slot('F', 0, 1), Slot('B', 0, 1)),
            (Slot('F', 1, 0), Slot('F', 1, 1), Slot('B', 1, 0), Slot('B', 1, 1)),
            (Slot('B', 2, 0), Slot('B', 2, 1)),
        ),
        frozenset({0, 1, 2}),
    )
    refuses(late,
            "schedule 'late' deadlocks: device 0 waits at B(cell 0, micro-batch 0) for B(cell 1, "
            "micro-batch 0)")


def test_backwards_out_of_order_are_refused():
    schedule = make_schedule('gpipe', 2, 2)
    swapped = replace(schedule, devices=(schedule.devices[0][:2] + schedule.devices[0][:1:-1],
                                         schedule.devices[1]))
    refuses(swapped,
            'runs B(cell 0, micro-batch 1) before micro-batch 0; backwards run in ascending order')


def test_forwards_out_of_order_are_refused():
    forwards = (Slot('F', 0, 1), Slot('F', 0, 0))
    schedule = make_schedule('gpipe', 2, 2)
    refuses(replace(schedule, devices=(forwards + schedule.devices[0][2:], schedule.devices[1])),
            'runs F(cell 0, micro-batch 1) before micro-batch 0; forwards run in ascending order')


def test_weight_gradients_out_of_order_are_refused():
    """W of a split B and a B that is whole add to the same sums."""
    schedule = make_schedule('gpipe', 1, 3)
    b0, b1, b2 = schedule.devices[0]
    w0, w1 = Slot('W', 0, 0), Slot('W', 0, 1)
    validate(replace(schedule, devices=((b0, b1, w0, w1, b2),)))
    refuses(replace(schedule, devices=((b0, b1, w1, w0, b2),)),
            'runs W(cell 0, micro-batch 1) before micro-batch 0; backwards run in ascending order')
    refuses(replace(schedule, devices=((b0, b1, b2, w0),)),
            'runs B(cell 0, micro-batch 1) before micro-batch 0; backwards run in ascending order')


def test_a_weight_gradient_before_its_backward_is_a_deadlock():
    b0, w0 = Slot('B', 0, 0), Slot('W', 0, 0)
    refuses(replace(make_schedule('gpipe', 1, 1), devices=((w0, b0),)),
            'device 0 waits at W(cell 0, micro-batch 0) for B(cell 0, micro-batch 0)')


def test_early_recomputation_runs_between_its_forward_and_its_backward():
    schedule = make_schedule('gpipe', 2, 1)
    (f0, b0), last = schedule.devices
    r0 = Slot('R', 0, 0)
    validate(replace(schedule, devices=((f0, r0, b0), last)))
    refuses(replace(schedule, devices=((r0, f0, b0), last)),
            'device 0 waits at R(cell 0, micro-batch 0) for F(cell 0, micro-batch 0)')
    refuses(replace(schedule, devices=((f0, b0, r0), last)),
            'device 0 waits at B(cell 0, micro-batch 0) for R(cell 0, micro-batch 0)')


def test_edges_that_do_not_lead_to_a_later_cell_are_refused():
    schedule = make_schedule('gpipe', 3, 2)
    for edge in [(1, 1), (2, 1), (-1, 1), (1, 3)]:
        refuses(schedule,
                f'edge {edge} does not go from a cell to a later one of 3; give (maker, reader)',
                {(0, 1), edge})


def test_a_schedule_whose_last_cell_computes_no_loss_is_refused():
    refuses(replace(make_schedule('gpipe', 3, 2), backward_cells=frozenset({0, 1})),
            'lacks the last cell, 2, whose B computes the loss')
