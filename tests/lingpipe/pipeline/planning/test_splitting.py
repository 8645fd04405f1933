"""Splitting: W stay only where they help, and no step takes longer for it."""

import itertools

import pytest

from lingpipe.pipeline.planning.cell_times import cell_times
from lingpipe.pipeline.planning.dependencies import chain
from lingpipe.pipeline.planning.drawing import grid
from lingpipe.pipeline.planning.schedules import TRAINING, make_schedule
from lingpipe.pipeline.planning.simulator import simulate
from lingpipe.pipeline.planning.splitting import split_where_it_helps
from lingpipe.pipeline.planning.validation import validate
from tests.support.held import most_held_on
from tests.support.schedule_grids import draw


def split(schedule, weight=None, split_s=0.0, backward=2.0):
    num_cells = schedule.num_cells
    times = cell_times([1.0] * num_cells, [backward] * num_cells, weight, split=split_s)
    return split_where_it_helps(schedule, times, chain(num_cells))


def step_s(schedule, weight=None, split_s=0.0):
    num_cells = schedule.num_cells
    return simulate(schedule, [1.0] * num_cells, [2.0] * num_cells, weight_s=weight,
                    split_s=split_s).step_s


def test_a_w_that_directly_follows_its_b_is_a_part_of_it_unless_somebody_waits():
    """The other cell waits for each B of the last, but for none of the first."""
    before = make_schedule('zb_h1', 2, 3)
    assert grid(before, lambda slot: 1) == draw(
        """F0 F1 B0 W0 F2 B1 W1 B2 W2
           .. B0 B1 W0 .. B2 W1 W2 ..""")
    assert grid(split(before), lambda slot: 1) == draw(
        """F0 F1 B0 F2 B1 B2 ..
           .. B0 B1 W0 B2 W1 W2""")


def test_cells_whose_weights_take_no_time_are_not_split():
    schedule = split(make_schedule('zb_v', 8, 8), weight=[1.0, 0.0] * 4)
    assert {slot.cell for slot in schedule.device_of if slot.kind == 'W'} <= {2, 4, 6}


def test_a_single_cell_is_not_split():
    assert not any(slot.kind == 'W' for slot in split(make_schedule('zb_v', 1, 4)).device_of)


@pytest.mark.parametrize('name', TRAINING)
def test_the_step_takes_no_longer_and_no_device_holds_more(name):
    for num_cells, num_micro_batches, split_s in itertools.product((1, 2, 4, 6), (1, 3, 8), (0, 1)):
        before = make_schedule(name, num_cells, num_micro_batches)
        after = split(before, split_s=float(split_s))
        validate(after)
        assert step_s(after, split_s=float(split_s)) <= step_s(before, split_s=float(split_s))
        held = zip(most_held_on(before), most_held_on(after), strict=True)
        assert all(fewer <= more for more, fewer in held)


def test_one_device_with_several_cells_splits_nothing():
    schedule = split(make_schedule('zb_v', 2, 4))
    assert not any(slot.kind == 'W' for slot in schedule.device_of)


@pytest.mark.parametrize(('name', 'num_cells', 'num_w'), [('zb_h2', 2, 2), ('zb_v', 4, 8)])
def test_the_middle_of_a_step_is_not_split_where_its_ends_suffice(name, num_cells, num_w):
    """Real cells took up to 7 % longer if all were split: on CPUs, W waits for memory."""
    before = make_schedule(name, num_cells, 8)
    after = split(before)
    assert {slot.micro_batch for slot in after.device_of if slot.kind == 'W'} <= {0, 6, 7}
    assert sum(slot.kind == 'W' for slot in after.device_of) <= num_w
    assert step_s(after) <= step_s(before)
