"""Cell parts: which tasks a cell has, and what one hands over to another."""
from __future__ import annotations

import pytest

from lingpipe.pipeline.planning.fitting_modes import Recomputation
from tests.lingpipe.pipeline.execution.test_cell_trace import cells, traced


@pytest.mark.parametrize(('kinds', 'tasks'), [
    (['F'], {'F'}),
    (['F', 'B'], {'F', 'B'}),
    (['F', 'B', 'W'], {'F', 'B', 'B_split', 'W'}),
])
def test_a_cell_has_the_tasks_that_its_schedule_calls(kinds, tasks):
    first, _, weights = cells()
    assert traced(first, weights, kinds)[2].tasks.keys() >= tasks - {'B'}
    assert traced(first, weights, kinds)[2].tasks.keys() <= tasks


@pytest.mark.parametrize('mode', ['none', 'cell', 'layer'])
def test_the_weights_start_from_what_the_inputs_hand_over(mode):
    _, last, weights = cells()
    tasks = traced(last, weights, ['B', 'W'], recomputation=Recomputation((mode,) * 2))[2].tasks
    assert tasks['B_split'].residuals_out
    assert list(tasks['W'].residuals_in) == list(tasks['B_split'].residuals_out)
