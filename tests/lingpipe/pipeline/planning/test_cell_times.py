"""The times of slots: what splitting and recomputation make of those of a cell."""

import re

import pytest

from lingpipe.pipeline.planning.cell_times import cell_times

TIMES = cell_times([1.0, 2.0], [5.0, 7.0], [3.0, 4.0], recompute=True, split=0.5)


@pytest.mark.parametrize('task_kind, first, last', [
    ('F', 1.0, 2.0),
    ('R', 1.0, 2.0),
    ('B', 6.0, 9.0),
    ('B_after_R', 5.0, 9.0),
    ('B_split', 3.25, 5.25),
    ('B_split_after_R', 2.25, 5.25),
    ('W', 3.25, 4.25),
])
def test_a_task_takes_its_part_of_the_cell(task_kind, first, last):
    """Each backward runs the forward: the last cell's as its own, the other's unless after R."""
    assert TIMES.of_task(0, task_kind) == first
    assert TIMES.of_task(1, task_kind) == last


def test_weights_take_half_of_the_backward_by_default():
    times = cell_times([1.0], [4.0])
    assert times.of_task(0, 'W') == 2.0
    assert times.of_task(0, 'B_split') == 3.0


def test_recomputation_and_the_cost_of_splitting_may_differ_between_cells():
    times = cell_times([1.0] * 3, [2.0] * 3, recompute=[True, False, True], split=[0.0, 1.0, 0.0])
    assert [times.of_task(k, 'B') for k in range(3)] == [3.0, 2.0, 3.0]
    assert [times.of_task(k, 'W') for k in range(3)] == [1.0, 1.5, 1.0]


@pytest.mark.parametrize('arguments, sentence', [
    (([1.0], [2.0], [3.0]), 'weight_s[0]=3.0 is more than backward_s[0]=2.0, of which'),
    (([1.0], [2.0, 2.0]), 'backward_s has 2 entries for 1 cell; give one a cell'),
    (([-1.0], [2.0]), 'forward_s[0]=-1.0 is not a finite number of 0 or more'),
])
def test_times_that_cannot_be_are_refused(arguments, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        cell_times(*arguments)
