"""Interleaved schedules: literal grids, and bubble and memory against the papers' formulas."""

import pytest

from lingpipe.pipeline.planning.drawing import grid
from lingpipe.pipeline.planning.interleaved import interleaved
from lingpipe.pipeline.planning.schedules import make_schedule
from lingpipe.pipeline.planning.simulator import simulate
from lingpipe.pipeline.planning.validation import validate
from tests.support.held import most_held_on
from tests.support.schedule_grids import draw


def bubble_s(schedule, cells_per_device):
    """Idle seconds of a device, if F = B = W = 1 for all cells of a device together."""
    num_cells = schedule.num_cells
    seconds = 1 / cells_per_device
    step_s = simulate(schedule, [seconds] * num_cells, [2 * seconds] * num_cells).step_s
    return step_s - 3 * schedule.num_micro_batches


@pytest.mark.parametrize('name, num_micro_batches, expected', [
    ('interleaved', 4,
     """F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F2.2 B0.0 F2.3 B0.1 ..   B2.2 ..   B2.3 B0.2 B0.3
        ..   F1.0 F1.1 B3.0 --   B3.1 --   F1.2 B1.0 F1.3 B1.1 B3.2 --   B3.3 --   B1.2 B1.3 .."""),
    ('interleaved', 3,
     """F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 ..   B2.1 F2.2 B0.0 B0.1 ..   B2.2 ..   B0.2
        ..   F1.0 F1.1 B3.0 --   B3.1 --   F1.2 B1.0 B1.1 B3.2 --   ..   B1.2 .."""),
    ('dual_pipe_v', 2,
     """F0.0 F0.1 ..   B3.0 --   W3.0 B3.1 --   --   B0.0 --   ..   ..   B0.1 --
        ..   F1.0 F2.0 F1.1 F2.1 B2.0 --   B1.0 --   B2.1 --   B1.1 --   ..   .."""),
])
def test_grid_of_four_cells_on_two_devices(name, num_micro_batches, expected):
    assert grid(make_schedule(name, 4, num_micro_batches)) == draw(expected)


@pytest.mark.parametrize('cells_per_device', [1, 2, 3, 4])
@pytest.mark.parametrize('num_devices', [1, 2, 3, 4, 8])
def test_interleaving_divides_the_bubble(num_devices, cells_per_device):
    """(D - 1)(F + B + W) / v if D divides M, and D (1 + (D - 1) / (D v)) micro-batches."""
    for num_micro_batches in (num_devices, 2 * num_devices, 4 * num_devices):
        schedule = interleaved(num_devices * cells_per_device, num_devices, num_micro_batches)
        assert bubble_s(schedule, cells_per_device) == pytest.approx(
            3 * (num_devices - 1) / cells_per_device)
    held = max(most_held_on(schedule)) / cells_per_device
    assert held == num_devices + (num_devices - 1) / cells_per_device


def test_any_number_of_cells_and_micro_batches_can_be_interleaved():
    for num_cells in range(1, 9):
        for num_devices in range(1, num_cells + 1):
            for num_micro_batches in (1, 2, 5, 9):
                validate(interleaved(num_cells, num_devices, num_micro_batches))


@pytest.mark.parametrize('num_devices', [2, 3, 4, 5, 8])
def test_dual_pipe_v_has_about_a_sixth_of_1f1bs_bubble_and_holds_little_more(num_devices):
    """Without overlap; with it the paper says (D / 2 - 1)(F&B + B - 3 W), and D + 1 of memory."""
    schedule = make_schedule('dual_pipe_v', 2 * num_devices, 4 * num_devices)
    assert bubble_s(schedule, 2) == num_devices / 2
    assert max(most_held_on(schedule)) == 2 * num_devices + 1


def test_dual_pipe_v_splits_few_backwards():
    schedule = make_schedule('dual_pipe_v', 16, 32)
    assert sum(slot.kind == 'W' for slot in schedule.device_of) < 0.2 * 16 * 32
