"""Schedules in a V: bubble and memory against the formulas of arXiv 2405.15362."""

import pytest

from lingpipe.pipeline.planning.building_blocks import most_held
from lingpipe.pipeline.planning.drawing import grid
from lingpipe.pipeline.planning.schedules import make_schedule
from lingpipe.pipeline.planning.simulator import simulate
from lingpipe.pipeline.planning.validation import validate
from tests.support.held import most_held_on
from tests.support.schedule_grids import draw


def bubble_s(name, num_devices, num_micro_batches):
    """Idle seconds of a device, if F = B = W = 1 for the two cells of a device together."""
    num_cells = 2 * num_devices
    schedule = make_schedule(name, num_cells, num_micro_batches)
    step_s = simulate(schedule, [0.5] * num_cells, [1.0] * num_cells).step_s
    return step_s - 3 * num_micro_batches


@pytest.mark.parametrize('name, num_cells, num_micro_batches, expected', [
    ('zb_v', 4, 2,
     """F0.0 F0.1 ..   B3.0 --   B3.1 --   B0.0 W0.0 B0.1 W0.1 W3.0 W3.1
        ..   F1.0 F2.0 F1.1 F2.1 B2.0 B1.0 B2.1 B1.1 W1.0 W1.1 W2.0 W2.1"""),
    ('v_half', 4, 2,
     """F0.0 ..   ..   B3.0 --   F0.1 W3.0 ..   B3.1 --   B0.0 W0.0 B0.1 W0.1 W3.1
        ..   F1.0 F2.0 ..   ..   B2.0 F1.1 F2.1 B1.0 W1.0 B2.1 B1.1 W1.1 W2.0 W2.1"""),
    ('v_min', 4, 2,
     """F0.0 ..   ..   B3.0 --   F0.1 W3.0 B0.0 W0.0 B3.1 --   W3.1 ..   B0.1 W0.1
        ..   F1.0 F2.0 ..   ..   B2.0 B1.0 F1.1 F2.1 W1.0 W2.0 B2.1 B1.1 W1.1 W2.1"""),
    ('zb_v', 2, 2, 'F0.0 B1.0 --   B0.0 W0.0 F0.1 W1.0 B1.1 --   B0.1 W0.1 W1.1'),
    ('zb_v', 1, 2, 'B0 -- B1 -- W0 W1'),
])
def test_grid(name, num_cells, num_micro_batches, expected):
    assert grid(make_schedule(name, num_cells, num_micro_batches)) == draw(expected)


@pytest.mark.parametrize('num_devices', [*range(1, 10), 12])
def test_bubbles_and_memory_are_the_papers(num_devices):
    """1f1b's bubble is 3 (D - 1).

    ZB-V keeps (D - 1) / 2 of it, since the update is synchronous; V-Half at most half and V-Min at
    most two thirds.
    """
    bubble_of_1f1b = 3 * (num_devices - 1)
    for num_micro_batches in (num_devices, 2 * num_devices, 3 * num_devices + 1):
        size = (num_devices, num_micro_batches)
        assert bubble_s('zb_v', *size) == bubble_of_1f1b / 6
        assert bubble_s('v_half', *size) <= bubble_of_1f1b / 2
        assert bubble_s('v_min', *size) <= bubble_of_1f1b * 2 / 3


@pytest.mark.parametrize('name, share', [('zb_v', 1), ('v_half', 1 / 2), ('v_min', 1 / 3)])
def test_no_device_holds_more_than_the_paper_says(name, share):
    """Shares of the D micro-batches of all cells that 1f1b's first device holds, and up to one."""
    for num_devices in range(1, 13):
        schedule = make_schedule(name, 2 * num_devices, 4 * num_devices)
        held = max(most_held_on(schedule)) / 2
        assert held == most_held(name, num_devices) / 2
        assert share * num_devices <= held <= share * num_devices + 4 / 3


def test_speed_up_of_eight_devices():
    """What a V reaches where 1f1b reaches 4.27 and 6.56."""
    assert 24 * 8 / (24 + bubble_s('zb_v', 8, 8)) == pytest.approx(6.98, abs=0.005)
    assert 96 * 8 / (96 + bubble_s('zb_v', 8, 32)) == pytest.approx(7.72, abs=0.005)


@pytest.mark.parametrize('name', ['zb_v', 'v_half', 'v_min'])
def test_an_odd_number_of_cells_is_a_v_without_its_last_cell(name):
    for num_cells in (1, 3, 5, 7, 9):
        schedule = make_schedule(name, num_cells, 6)
        validate(schedule)
        assert len(schedule.devices) == (num_cells + 1) // 2
