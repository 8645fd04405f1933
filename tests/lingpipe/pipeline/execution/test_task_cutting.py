"""Task cutting: a task takes what it uses, and gives what later tasks of its cell need."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.pipeline.execution.forward_trace import TracingOptions, trace_forward
from lingpipe.pipeline.execution.graph_cutting import Subgraphs
from lingpipe.pipeline.execution.task_cutting import Part, TaskCutter
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.pipeline.planning.dataflow import wire

W = np.eye(3, dtype=np.float32) * 2
X = np.arange(6, dtype=np.float32).reshape(2, 3)
WIDE = 2 * 3 * 4   # bytes of a value


@pytest.fixture(scope='module')
def parts() -> tuple[TaskCutter, Part, Part]:
    """Two products with a tanh between them: the cutter, the part up to tanh, and the rest."""
    network = Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='one', input_dim=3, units=3, use_bias=False, activation='tanh'),
        layers.Dense.Params(name='two', input_dim=3, units=3, use_bias=False),
        layers.MeanSquaredErrorLoss.Params(name='loss'))).instantiate('model')
    elements = wire(network, {'x': tf.TensorSpec([2, 3]), 'target': tf.TensorSpec([2, 3])})
    cell = Cell(0, elements[:2], 'CPU:0')
    forward = trace_forward(cell, lambda path: tf.constant(W), TracingOptions(training=False))
    with forward.graph.as_default():
        token = tf.constant(0)
    middle = forward.results[0].written['x']
    cutter = TaskCutter(forward, forward.arguments, Subgraphs(forward.graph))
    return cutter, Part(token, residuals_out=[middle]), Part(token, outputs=forward.outputs)


def position() -> list[tf.Tensor]:
    return [tf.constant(0, tf.int64), tf.constant(0)]


def test_a_task_takes_only_the_inputs_that_it_uses(parts):
    cutter, first, rest = parts
    assert [value.name for value, _ in cutter.task(first).inputs] == ['x']
    assert cutter.task(rest.after(first.residuals_out)).inputs == []


def test_two_tasks_compute_what_the_cell_computes(parts):
    cutter, first, rest = parts
    middle, _ = cutter.task(first).function(*position(), tf.constant(X))
    y, _ = cutter.task(rest.after(first.residuals_out)).function(*position(), middle)
    np.testing.assert_allclose(middle, np.tanh(2 * X), rtol=1e-6)
    np.testing.assert_allclose(y, 2 * np.tanh(2 * X), rtol=1e-6)


def test_what_is_taken_over_from_another_task_is_held(parts):
    cutter, first, rest = parts
    task = cutter.task(rest.after(first.residuals_out))
    assert task.residuals_in == [tensor.name for tensor in first.residuals_out]
    assert task.held_bytes == cutter.task(first).handed_bytes == WIDE


def test_what_one_part_computes_anyway_is_handed_over(parts):
    cutter, first, rest = parts
    handed, = cutter.handed_over(first, rest)
    assert handed is first.residuals_out[0]


def test_a_part_that_starts_from_tensors_runs_none_of_the_ops_before_them(parts):
    cutter, first, rest = parts
    before, after = cutter.ops_of(first), cutter.ops_of(rest.after(first.residuals_out))
    assert any(name.endswith('Tanh') for name in before)
    assert not any(name.endswith('Tanh') for name in after)
