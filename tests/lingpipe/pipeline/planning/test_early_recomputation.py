"""Early recomputation: forwards run again while a gradient is on its way."""

import pytest

from lingpipe.pipeline.planning.cell_times import cell_times
from lingpipe.pipeline.planning.dependencies import chain
from lingpipe.pipeline.planning.drawing import grid
from lingpipe.pipeline.planning.early_recomputation import recompute_early
from lingpipe.pipeline.planning.playing import play
from lingpipe.pipeline.planning.schedules import TRAINING, make_schedule
from lingpipe.pipeline.planning.validation import validate
from tests.support.schedule_grids import draw


def times_of(num_cells, recompute=True):
    return cell_times([1.0] * num_cells, [2.0] * num_cells, recompute=recompute)


def early(name, num_cells, num_micro_batches, recompute=True):
    schedule = make_schedule(name, num_cells, num_micro_batches)
    return recompute_early(schedule, times_of(num_cells, recompute), chain(num_cells))


def step_s(schedule, recompute=True):
    times = times_of(schedule.num_cells, recompute)
    return max(end for _, end in play(schedule, times.of(schedule)).values())


def test_the_forward_runs_again_before_every_backward_that_waits():
    """B1 would wait for nothing, if B0 did not end earlier by its R."""
    assert grid(early('gpipe', 3, 3), lambda slot: 1) == draw(
        """F0 F1 F2 R0 .. .. B0 R1 B1 R2 B2
           .. F0 F1 F2 R0 B0 R1 B1 R2 B2 ..
           .. .. B0 B1 B2 .. .. .. .. .. ..""")


@pytest.mark.parametrize('name', TRAINING)
def test_no_step_takes_longer(name):
    for num_cells in range(1, 7):
        for num_micro_batches in (1, 3, 8):
            schedule = early(name, num_cells, num_micro_batches)
            validate(schedule)
            assert step_s(schedule) <= step_s(make_schedule(name, num_cells, num_micro_batches))


def test_a_step_that_waits_becomes_shorter():
    before = make_schedule('gpipe', 4, 4)
    assert step_s(early('gpipe', 4, 4)) < step_s(before)


def test_cells_that_recompute_nothing_repeat_nothing():
    schedule = early('1f1b', 4, 4, recompute=[False, True, False, True])
    assert {slot.cell for slot in schedule.device_of if slot.kind == 'R'} == {1}
