"""Zero bubble with one cell a device: bubble and memory against the paper's formulas."""

import pytest

from lingpipe.pipeline.planning.drawing import grid
from lingpipe.pipeline.planning.schedules import make_schedule
from lingpipe.pipeline.planning.simulator import simulate
from tests.support.held import most_held_on
from tests.support.schedule_grids import draw


def run(name, num_cells, num_micro_batches, forward_s=1.0, input_s=1.0, weight_s=1.0):
    """The simulation of equal cells."""
    schedule = make_schedule(name, num_cells, num_micro_batches)
    return simulate(schedule, [forward_s] * num_cells, [input_s + weight_s] * num_cells,
                    weight_s=[weight_s] * num_cells)


@pytest.mark.parametrize('name, num_cells, num_micro_batches, expected', [
    ('zb_h1', 3, 4,
     """F0 F1 F2 .. .. B0 W0 F3 B1 W1 B2 W2 B3 W3
        .. F0 F1 .. B0 F2 B1 W0 F3 B2 W1 B3 W2 W3
        .. .. B0 -- B1 -- B2 -- W0 B3 -- W1 W2 W3"""),
    ('zb_h2', 3, 6,
     """F0 F1 F2 F3 F4 B0 W0 F5 B1 B2 W1 W2 B3 B4 W3 W4 B5 W5 .. ..
        .. F0 F1 F2 B0 F3 B1 F4 B2 W0 F5 B3 B4 W1 W2 B5 W3 W4 W5 ..
        .. .. B0 -- B1 -- B2 -- B3 -- B4 -- W0 B5 -- W1 W2 W3 W4 W5"""),
    ('zb_h1', 2, 1,
     """F0 .. .. B0 W0
        .. B0 -- W0 .."""),
    ('zb_h2', 1, 2, 'B0 -- W0 B1 -- W1'),
])
def test_grid(name, num_cells, num_micro_batches, expected):
    assert grid(make_schedule(name, num_cells, num_micro_batches)) == draw(expected)


@pytest.mark.parametrize('num_cells', range(1, 9))
@pytest.mark.parametrize('forward_s, input_s, weight_s', [(1, 1, 1), (2, 2, 2), (1, 1.5, 1)])
def test_zb_h1_has_the_papers_bubble_and_memory(num_cells, forward_s, input_s, weight_s):
    """Bubble (K - 1)(F + B - W) and K micro-batches, for M >= K (table 2 of arXiv 2401.10241)."""
    for num_micro_batches in (num_cells, 2 * num_cells, 32):
        work_s = num_micro_batches * (forward_s + input_s + weight_s)
        found = run('zb_h1', num_cells, num_micro_batches, forward_s, input_s, weight_s)
        assert found.step_s - work_s == (num_cells - 1) * (forward_s + input_s - weight_s)
        assert max(found.peak_live) == num_cells


@pytest.mark.parametrize('num_cells', range(1, 9))
def test_zb_h2_lets_no_device_wait_once_it_has_begun(num_cells):
    """(K - 1)(F + B - 2 W) = 0 within a device; the last one still starts K - 1 forwards late."""
    for num_micro_batches in (2 * num_cells, 4 * num_cells):
        schedule = make_schedule('zb_h2', num_cells, num_micro_batches)
        found = run('zb_h2', num_cells, num_micro_batches)
        for slots in schedule.devices:
            begin_s, end_s = found.spans[slots[0]][0], found.spans[slots[-1]][1]
            assert end_s - begin_s == 3 * num_micro_batches
        assert found.step_s == 3 * num_micro_batches + num_cells - 1
        assert max(most_held_on(schedule)) == 2 * num_cells - 1


def test_zb_h2_is_faster_than_zb_h1_where_input_gradients_take_long():
    steps = [run(name, 8, 32, 1, 2, 1).step_s for name in ('1f1b', 'zb_h1', 'zb_h2')]
    assert steps == [4 * 39, 4 * 32 + 14, 4 * 32 + 7]
