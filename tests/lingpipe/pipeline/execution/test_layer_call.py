"""Layer call: forward, repetition and backward of one layer."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.pipeline.execution.layer_call import LayerCall, scope_of
from lingpipe.pipeline.planning.dataflow import wire
from tests.support.toy_layers import Add

B, D = 4, 3
RANDOM = np.random.default_rng(0)
X, SEED, W = (RANDOM.standard_normal(shape).astype(np.float32)
              for shape in ([B, D], [B, D], [D, D]))
BIAS = np.array([1., 2., 3.], np.float32)
TOLERANCE = 1e-5


class Pair(Layer):
    """Two tensors, where the cost promises one."""

    def fprop(self, theta, ctx, x):
        return (x, x)

    def cost(self, x):
        return Cost(0, 0, x)


class Column(Layer):
    """The first column, where the cost promises all."""

    def fprop(self, theta, ctx, x):
        return x[:, :1]

    def cost(self, x):
        return Cost(0, 0, x)


class Breaks(Layer):
    """An error of its own."""

    def fprop(self, theta, ctx, x):
        raise KeyError('a key')

    def cost(self, x):
        return Cost(0, 0, x)


def call_of(layer: Layer.Params, **weights: np.ndarray) -> LayerCall:
    """A call of a layer whose input x carries a gradient, since a Dense layer makes it."""
    network = Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='first', input_dim=D, units=D), layer)).instantiate('model')
    element = wire(network, {'x': tf.TensorSpec([B, D]), 'target': tf.TensorSpec([B, D])})[1]
    inputs = {'x': X, 'target': np.zeros([B, D], np.float32)}
    return LayerCall(
        element, {f'model/{layer.name}/{name}': tf.constant(w) for name, w in weights.items()},
        {value: tf.constant(inputs[value.name]) for value in element.reads.values()},
        lambda: Context(True, experiment_seed=5))


def dense() -> LayerCall:
    return call_of(layers.Dense.Params(name='dense', input_dim=D, units=D), w=W, b=BIAS)


def test_forward_gives_what_the_layer_writes():
    written = dense().forward(with_tape=False).written
    assert written.keys() == {'x'}
    np.testing.assert_allclose(written['x'], X @ W + BIAS, rtol=TOLERANCE, atol=TOLERANCE)


def test_forward_gives_what_the_layer_emits():
    emissions = call_of(layers.MeanSquaredErrorLoss.Params(name='loss')).forward(False).emissions
    assert float(emissions.losses['model/loss', 'loss']) == pytest.approx((X ** 2).sum(), rel=1e-5)


def test_a_repetition_draws_the_same_random_numbers():
    call = call_of(layers.Dropout.Params(name='dropout', rate=0.5))
    first = call.forward(with_tape=True)
    second = call.repeat(after=[first.written['x']])
    np.testing.assert_array_equal(first.written['x'], second.written['x'])


def test_backward_gives_the_gradients_of_weights():
    call = dense()
    written, = call.element.writes.values()
    weights = call.forward(with_tape=True).backward({(written, 0): tf.constant(SEED)}).weights
    assert weights.keys() == {'model/dense/w', 'model/dense/b'}
    np.testing.assert_allclose(weights['model/dense/w'], X.T @ SEED, atol=TOLERANCE)
    np.testing.assert_allclose(weights['model/dense/b'], SEED.sum(0), atol=TOLERANCE)


def test_backward_adds_the_gradient_of_an_input_to_what_later_layers_have_given():
    call = dense()
    (read,), (written,) = call.element.reads.values(), call.element.writes.values()
    sums = {(written, 0): tf.constant(SEED), (read, 0): tf.fill([B, D], 10.)}
    inputs = call.forward(with_tape=True).backward(sums).inputs
    np.testing.assert_allclose(inputs[read, 0], 10. + SEED @ W.T, atol=TOLERANCE)


def test_an_input_that_is_read_twice_has_one_gradient():
    call = call_of(Add.Params(name='add', reads={'x': 'x', 'skip': 'x'}))
    written, = call.element.writes.values()
    gradients = call.forward(with_tape=True).backward({(written, 0): tf.constant(SEED)})
    gradient, = gradients.inputs.values()
    np.testing.assert_allclose(gradient, 2 * SEED, atol=TOLERANCE)


def test_a_loss_needs_no_gradient_from_later_layers():
    call = call_of(layers.MeanSquaredErrorLoss.Params(name='loss'))
    gradient, = call.forward(with_tape=True).backward({}).inputs.values()
    np.testing.assert_allclose(gradient, 2 * X, rtol=TOLERANCE)


def test_a_layer_whose_outputs_have_no_gradient_gives_none():
    gradients = dense().forward(with_tape=True).backward({})
    assert (gradients.weights, gradients.inputs) == ({}, {})


@pytest.mark.parametrize(('layer', 'sentence'), [
    (Pair, r'model/wrong returns tuple; fprop of Pair must return a tensor, or a dict of tensors '
           r'with names.'),
    (Column, r'model/wrong writes x float32 \(4, 1\), but its cost says x float32 \(4, 3\); '
             r'correct Column.cost.'),
])
def test_a_layer_that_returns_something_else_than_its_cost_says_is_refused(layer, sentence):
    with pytest.raises(ValueError, match=sentence):
        call_of(layer.Params(name='wrong')).forward(with_tape=False)


def test_an_error_of_a_layer_names_the_layer():
    with pytest.raises(KeyError) as error:
        call_of(Breaks.Params(name='breaks')).forward(with_tape=False)
    assert error.value.__notes__ == ['in layer model/breaks']


@pytest.mark.parametrize(('path', 'scope'), [
    ('model/dense_1', 'model/dense_1.'), ('model/a b', 'model/a.b.'), ('größe', 'gr..e.')])
def test_a_path_becomes_a_name_scope(path, scope):
    assert scope_of(path) == scope
