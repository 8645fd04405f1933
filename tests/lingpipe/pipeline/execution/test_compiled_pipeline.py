"""Compiled pipeline: all cells of a replica, and the compiled tasks that they are made of."""
from __future__ import annotations


def test_tasks_and_accumulators_are_those_of_the_cells(pipeline):
    assert pipeline.tasks.keys() == {('F', 0), ('B', 0), ('B', 1)}
    assert [one.layout.num_scalars for one in pipeline.accumulators] == [0, 2]


def test_a_cell_gives_the_gradients_that_the_cell_before_it_takes(pipeline):
    last, first = pipeline.tasks['B', 1], pipeline.tasks['B', 0]
    assert [value.name for value, _ in last.gradients_out] == ['x']
    assert list(first.gradients_in) == list(last.gradients_out)
