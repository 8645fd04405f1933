"""List scheduling: limits that are kept without deadlock, and orders that are given."""

import dataclasses

import pytest

from lingpipe.pipeline.planning.cell_times import cell_times
from lingpipe.pipeline.planning.dependencies import chain
from lingpipe.pipeline.planning.drawing import grid
from lingpipe.pipeline.planning.list_scheduling import Policy, Workload, list_schedule
from lingpipe.pipeline.planning.schedule import Slot
from lingpipe.pipeline.planning.validation import validate
from tests.support.held import most_held_on
from tests.support.schedule_grids import draw


def work_of(layout, num_micro_batches, backward_cells=None, **times):
    num_cells = len(layout)
    cells = range(num_cells) if backward_cells is None else backward_cells
    return Workload(layout, num_micro_batches, frozenset(cells), chain(num_cells),
                    cell_times([1.0] * num_cells, [2.0] * num_cells), **times)


def policy_of(work, most, **options):
    ones = [1] * work.num_cells
    return Policy(ones, ones, [most] * work.num_devices, **options)


def test_a_device_prefers_backwards_then_forwards_then_weights():
    work = work_of((0, 1), 3)
    assert grid(list_schedule('list', work, policy_of(work, 2))) == draw(
        """F0 F1 .. B0 -- F2 B1 -- B2 --
           .. B0 -- B1 -- W0 B2 -- W1 W2""")


def test_a_backward_that_nobody_waits_for_is_whole_and_comes_last():
    work = work_of((0, 1), 2)
    schedule = list_schedule('list', work, policy_of(work, 9))
    assert not any(slot.kind == 'W' and slot.cell == 0 for slot in schedule.device_of)


@pytest.mark.parametrize('layout', [(0, 1, 1, 0), (0, 1, 0, 1), (0, 0, 1, 1), (0, 0, 0, 0),
                                    (0, 1, 2, 2, 1, 0), (0, 1, 2, 3)])
@pytest.mark.parametrize('splits', [False, True])
def test_no_limit_is_too_small_for_progress_and_all_that_leave_room_are_kept(layout, splits):
    cells_per_device = max(layout.count(device) for device in layout)
    for num_micro_batches in (1, 2, 7):
        for most in range(9):
            work = work_of(layout, num_micro_batches)
            schedule = list_schedule('list', work, policy_of(work, most, splits=splits))
            validate(schedule)
            assert max(most_held_on(schedule)) <= max(most, cells_per_device)


def test_cells_without_backward_hold_nothing():
    work = work_of((0, 1, 1, 0), 6, backward_cells={2, 3})
    schedule = list_schedule('list', work, policy_of(work, 2))
    validate(schedule)
    assert schedule.backward_cells == {2, 3}


def test_a_w_runs_while_a_slot_waits_for_what_is_sent():
    work = dataclasses.replace(work_of((0, 1), 2), delay=lambda sender, receiver: 3.0,
                               times=cell_times([4.0, 1.0], [2.0, 2.0]))
    schedule = list_schedule('list', work, policy_of(work, 9))
    assert [str(slot)[0] for slot in schedule.devices[1]] == ['B', 'W', 'B', 'W']


def test_a_given_order_is_kept_and_weights_fill_its_gaps():
    work = work_of((0, 1), 2)
    order = [[Slot('F', 0, 0), Slot('B', 0, 0), Slot('F', 0, 1), Slot('B', 0, 1)],
             [Slot('B', 1, 0), Slot('B', 1, 1)]]
    assert grid(list_schedule('list', work, policy_of(work, 9, order=order))) == draw(
        """F0 .. .. B0 F1 W0 .. B1 W1
           .. B0 -- W0 .. B1 -- W1 ..""")


def test_an_order_that_waits_for_itself_is_none():
    work = work_of((0, 1), 1)
    order = [[Slot('B', 0, 0), Slot('F', 0, 0)], [Slot('B', 1, 0)]]
    assert list_schedule('list', work, policy_of(work, 9, order=order)) is None
