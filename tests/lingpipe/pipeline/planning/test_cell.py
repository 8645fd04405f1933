"""Cells: the values that cross their ends, the gradients they pass on, and who sends to whom."""

import pytest
import tensorflow as tf

from lingpipe.pipeline.planning.cell import Cell, edges_of_tasks, leaves_of
from lingpipe.pipeline.planning.dataflow import Value
from tests.support.planned_chains import elements_with_skip


def cells_of(*frozen):
    """Three cells: in; mid; add and the loss."""
    elements = elements_with_skip(*frozen)
    spans = (elements[:1], elements[1:2], elements[2:])
    return [Cell(k, span, f'CPU:{k}') for k, span in enumerate(spans)]


def names(values):
    return {str(value) for value in values}


def test_inputs_are_what_a_cell_reads_and_does_not_make():
    assert [names(cell.inputs) for cell in cells_of()] == [
        {'image@-1'}, {'skip@0'}, {'x@1', 'skip@0', 'labels@-1', 'weight@-1'}]


def test_an_input_that_two_layers_of_a_cell_read_is_there_once():
    mid_and_add = Cell(1, elements_with_skip()[1:3], 'CPU:1')
    assert [str(value) for value in mid_and_add.inputs] == ['skip@0']


def test_outputs_are_what_later_cells_read():
    assert [names(cell.outputs) for cell in cells_of()] == [{'skip@0'}, {'x@1'}, set()]


def test_a_fetched_value_is_an_output_though_no_later_cell_reads_it():
    elements = elements_with_skip()
    fetched = frozenset({elements[2].writes['x']})
    assert names(Cell(2, elements[2:], 'CPU:2', fetched).outputs) == {'x@2'}


@pytest.mark.parametrize(('frozen', 'expected'), [
    ((), [True, True, True]),
    (('model/in/w',), [False, True, True]),
    (('model/in/w', 'model/mid/w'), [False, False, False]),
])
def test_a_cell_has_a_backward_if_a_weight_in_or_before_it_trains(frozen, expected):
    assert [cell.has_backward for cell in cells_of(*frozen)] == expected


def test_gradients_are_wanted_of_inputs_behind_a_weight_that_trains():
    gradients = [[str(value) for value, _ in cell.gradients_wanted] for cell in cells_of()]
    assert [set(values) for values in gradients] == [set(), {'skip@0'}, {'x@1', 'skip@0'}]


def test_no_gradient_is_wanted_of_what_frozen_weights_made():
    cells = cells_of('model/in/w')
    assert {str(value) for value, _ in cells[2].gradients_wanted} == {'x@1'}


def test_leaves_are_numbered_within_their_value():
    pair = Value('pair', 0, {'a': tf.TensorSpec([4]), 'b': tf.TensorSpec([4])}, needs_gradient=True)
    one = Value('one', 1, tf.TensorSpec([4]), needs_gradient=True)
    assert leaves_of([pair, one]) == [(pair, 0), (pair, 1), (one, 0)]


def test_tasks_pass_a_skip_connection_from_reader_to_reader():
    """The last cell reads skip of cell 0, but takes turns with cell 1: there is no edge (0, 2)."""
    assert edges_of_tasks(cells_of()) == {(0, 1), (1, 2)}
