"""Compiled pipeline: all cells of a replica, and the compiled tasks that they are made of."""
from __future__ import annotations

import pytest


def test_tasks_and_accumulators_are_those_of_the_cells(pipeline):
    assert pipeline.tasks.keys() == {('F', 0), ('B', 0), ('B', 1)}
    assert [one.layout.num_scalars for one in pipeline.accumulators] == [0, 2]


def test_a_cell_gives_the_gradients_that_the_cell_before_it_takes(pipeline):
    last, first = pipeline.tasks['B', 1], pipeline.tasks['B', 0]
    assert [value.name for value, _ in last.gradients_out] == ['x']
    assert list(first.gradients_in) == list(last.gradients_out)


@pytest.mark.parametrize(('key', 'differentiated'), [
    (('F', 0), set()), (('B', 0), {'model/in/w', 'model/in/b'}), (('B', 1), set())])
def test_a_task_names_the_weights_that_it_makes_gradients_of(pipeline, key, differentiated):
    assert set(pipeline.tasks[key].differentiated) == differentiated


@pytest.mark.parametrize('key', [('F', 0), ('B', 0), ('B', 1)])
def test_a_compiled_task_takes_the_position_and_what_it_lists(pipeline, key):
    task = pipeline.tasks[key]
    arguments, _ = task.function.structured_input_signature
    num_listed = len(task.inputs) + len(task.shared) + len(task.gradients_in)
    assert len(arguments) == 2 + num_listed + len(task.residuals_in)


@pytest.mark.parametrize('key', [('F', 0), ('B', 0), ('B', 1)])
def test_a_compiled_task_gives_what_it_lists_and_a_token(pipeline, key):
    task = pipeline.tasks[key]
    num_listed = len(task.outputs) + len(task.gradients_out)
    assert len(task.function.structured_outputs) == num_listed + len(task.residuals_out) + 1
