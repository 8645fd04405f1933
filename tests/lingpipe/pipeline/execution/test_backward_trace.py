"""Backward trace: gradients of weights go to the sums, and those of inputs to earlier cells."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.layers.base import Layer
from lingpipe.pipeline.execution.backward_trace import trace_backward
from lingpipe.pipeline.execution.forward_trace import TracingOptions, trace_forward
from lingpipe.pipeline.planning.cell import Cell, leaves_of
from lingpipe.pipeline.planning.dataflow import wire
from lingpipe.tools.device_checks.subjects import Subject
from tests.support.traced import NoAccumulators

SPEC = {'x': tf.TensorSpec([2, 3]), 'target': tf.TensorSpec([2, 3])}
W = np.arange(9, dtype=np.float32).reshape(3, 3)


class Records(NoAccumulators):
    """Remembers in which order gradients came."""

    def __init__(self):
        self.paths: list[str] = []

    def add_gradient(self, path, gradient, micro_batch):
        self.paths.append(path)
        return super().add_gradient(path, gradient, micro_batch)


class Loop(Layer):
    """Multiplies by w three times."""

    def __init__(self, params, path=''):
        super().__init__(params, path)
        self.add_weight('w', [3, 3])

    def fprop(self, theta, ctx, x):
        return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.tanh(y @ theta.w)),
                             (tf.constant(0), x), maximum_iterations=3)[1]


def cell(frozen: str = '') -> Cell:
    """Two products after another layer, so that the gradient of the input is wanted."""
    network = Sequential.Params(name='model', layers=(
        *[layers.Dense.Params(name=name, input_dim=3, units=3, use_bias=False)
          for name in ('first', 'second', 'third')],
        layers.MeanSquaredErrorLoss.Params(name='loss'))).instantiate('model')
    elements = wire(network, SPEC, lambda path: path == frozen)
    return Cell(1, elements[1:3], 'CPU:0')


def traced(one: Cell, training: bool = True):
    """Returns the trace backward, with a placeholder as gradient of the output, and the sums."""
    forward = trace_forward(one, lambda path: tf.constant(W), TracingOptions(training))
    sums = Records()
    with forward.graph.as_default():
        arguments = forward.arguments.with_gradients(leaves_of(one.outputs))
        return trace_backward(forward, sums, arguments.gradients), arguments, sums


def test_gradients_are_added_from_the_last_layer_to_the_first():
    trace, _, sums = traced(cell())
    assert sums.paths == trace.differentiated == ['model/third/w', 'model/second/w']


def test_the_gradient_of_the_input_is_that_of_both_products():
    trace, arguments, _ = traced(cell())
    gradient_in, = arguments.gradients.values()
    gradient_out, = trace.gradients.values()
    with tf.compat.v1.Session(graph=gradient_out.graph) as session:
        found = session.run(gradient_out.name, {gradient_in.name: np.ones([2, 3])})
    np.testing.assert_allclose(found, np.ones([2, 3]) @ W.T @ W.T, rtol=1e-6)


def test_a_frozen_weight_has_no_gradient():
    assert traced(cell(frozen='model/third/w'))[0].differentiated == ['model/second/w']


@pytest.mark.parametrize('training', [True, False])
def test_only_training_has_gradients(training):
    trace, _, sums = traced(cell(), training)
    assert bool(sums.paths) == bool(trace.gradients) == training


def test_what_a_backward_makes_of_forward_tensors_waits_for_the_gradient():
    """It ran as soon as the forward had, and stayed in memory until the gradient came."""
    network = Sequential.Params(name='model', layers=(
        *[layers.SwiGLU.Params(name=name, input_dim=3, hidden_dim=4)
          for name in ('first', 'second')],
        layers.MeanSquaredErrorLoss.Params(name='loss'))).instantiate('model')
    one = Cell(0, wire(network, SPEC)[:2], 'CPU:0')
    forward = trace_forward(one, lambda path: tf.zeros(
        [4, 3] if path.endswith('w_down') else [3, 4]), TracingOptions(True))
    with forward.graph.as_default():
        arguments = forward.arguments.with_gradients(leaves_of(one.outputs))
        trace = trace_backward(forward, Records(), arguments.gradients)

    ops = {op.name: op for op in forward.graph.get_operations()}
    early = [name for name, op in ops.items() if op.type == 'Sigmoid' and '_backward' in name]
    assert len(early) == 2
    gradient = {tensor.op.name for tensor in arguments.gradients.values()}
    of_second, = (name for name in early if 'second' in name)
    of_first, = (name for name in early if 'first' in name)
    assert set(trace.waits[of_second]) == gradient
    assert any('second' in name for name in trace.waits[of_first])


def test_what_a_backward_asks_of_the_forward_does_not_wait_for_the_gradient():
    """The gradient of a loop has the forward keep more, which waited for the gradient: a circle."""
    network = Sequential.Params(name='model', layers=(
        Loop.Params(name='loop'), layers.MeanSquaredErrorLoss.Params(name='loss')))
    batch = {name: tf.ones([2, 3]) for name in SPEC}
    subject = Subject('loop', network, batch)
    one = subject.program(['CPU:0'], num_cells=1, num_micro_batches=1, recompute='none')
    assert np.isfinite(subject.arrays_after(one, 1)['weights/model/loop/w']).all()
