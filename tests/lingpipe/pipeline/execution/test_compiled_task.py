"""Compiled task: its lists say what the function takes and gives."""
from __future__ import annotations

import pytest


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
