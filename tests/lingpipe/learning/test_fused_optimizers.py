"""Fused optimizers update in place, in one op, and as Keras does; else Keras' own ops do it."""
from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from lingpipe.hyperparams import fields_of
from lingpipe.learning import optimizers
from lingpipe.learning.fused_optimizers import FUSED_DTYPES, FusedRMSprop, FusedSGD
from lingpipe.learning.slots import KerasWeight
from tests.support.learners import gradient_of, learner, make_weights

PATH = 'model/dense/kernel'
FUSED = [(optimizers.SGD.Params(), 'ResourceApplyGradientDescent'),
         (optimizers.SGD.Params(momentum=0.9), 'ResourceApplyKerasMomentum'),
         (optimizers.SGD.Params(momentum=0.9, nesterov=True), 'ResourceApplyKerasMomentum'),
         (optimizers.RMSProp.Params(momentum=0.9), 'ResourceApplyRMSProp')]
FUSED_IDS = ['sgd', 'momentum', 'nesterov', 'rmsprop']


def layer_of(optimizer, dtype=tf.float32, **fields):
    weight = tf.Variable(tf.cast(make_weights()[PATH], dtype))
    return learner(optimizer=optimizer, **fields).for_layer('model/dense', {PATH: weight})


def ops_of_update(layer):
    """The ops of an update in a graph, by type."""
    spec = tf.TensorSpec([4, 3], layer.weights[PATH].dtype)
    graph = tf.function(lambda gradient: layer.apply({PATH: gradient}), autograph=False
                        ).get_concrete_function(spec).graph
    return graph.get_operations()


@pytest.mark.parametrize(('optimizer', 'op'), FUSED, ids=FUSED_IDS)
def test_an_update_is_one_op_and_makes_no_tensor_of_the_size_of_the_weight(optimizer, op):
    ops = ops_of_update(layer_of(optimizer))
    assert [one.type for one in ops].count(op) == 1
    makers = {one.type for one in ops for tensor in one.outputs if tensor.shape == [4, 3]}
    assert makers <= {'Placeholder', 'ReadVariableOp', 'Identity'}


@pytest.mark.parametrize(('optimizer', 'op'), FUSED, ids=FUSED_IDS)
def test_what_was_read_before_an_update_stays_as_it_was(optimizer, op):
    layer = layer_of(optimizer)
    variables = [layer.weights[PATH], *layer.variables().values()]
    layer.apply({PATH: tf.constant(gradient_of(PATH, 0))})

    @tf.function(autograph=False)
    def update(gradient):
        """Returns the variables before and after the update."""
        before = [variable.read_value() for variable in variables]
        with tf.control_dependencies(before):
            layer.apply({PATH: gradient})
        return [value + 0 for value in before], [variable + 0 for variable in variables]

    expected = [variable.numpy() for variable in variables]
    read = [variable.read_value() for variable in variables]
    before, after = update(tf.constant(gradient_of(PATH, 1)))
    for one, other, value, new in zip(expected, read, before, after, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, value)
        assert np.any(new != one)


@pytest.mark.parametrize(('optimizer', 'op'), FUSED, ids=FUSED_IDS)
@pytest.mark.parametrize('dtype', [tf.float64, tf.float32, tf.bfloat16, tf.float16],
                         ids=lambda dtype: dtype.name)
def test_numbers_are_those_of_keras_in_every_dtype(optimizer, op, dtype):
    layer = layer_of(optimizer, dtype)
    assert (op in {one.type for one in ops_of_update(layer_of(optimizer, dtype))}
            ) == (dtype in FUSED_DTYPES)
    theirs = type(optimizer.instantiate()).keras_class(
        0.1, **{name: optimizer[name] for name in fields_of(optimizer)})
    weight = tf.Variable(layer.weights[PATH].numpy())
    theirs.build([KerasWeight(weight, PATH)])
    for step in range(5):
        gradient = tf.cast(gradient_of(PATH, step), dtype)
        theirs.update_step(gradient, weight, tf.cast(tf.constant(0.1), dtype))
        layer.apply({PATH: gradient})
    tolerance = {tf.float64: 1e-14, tf.float32: 1e-6}.get(dtype, 0)
    np.testing.assert_allclose(tf.cast(layer.weights[PATH], tf.float64),
                               tf.cast(weight, tf.float64), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(('optimizer', 'made_class'), [
    (optimizers.SGD.Params(momentum=0.9), FusedSGD),
    (optimizers.RMSProp.Params(momentum=0.9), FusedRMSprop)], ids=['sgd', 'rmsprop'])
def test_slots_in_bfloat16_and_rows_of_a_gradient_are_left_to_keras(optimizer, made_class):
    rounded = layer_of(optimizer, bfloat16_slots=True)
    assert not [op for op in ops_of_update(rounded) if op.type.startswith('ResourceApply')]

    rows, dense = layer_of(optimizer), layer_of(optimizer)
    assert isinstance(optimizer.instantiate().make(), made_class)
    values = gradient_of(PATH, 0)[:2]
    rows.apply({PATH: tf.IndexedSlices(tf.constant(values), tf.constant([2, 0]),
                                       tf.constant([4, 3]))})
    dense.apply({PATH: tf.constant([values[1], [0] * 3, values[0], [0] * 3])})
    np.testing.assert_allclose(rows.weights[PATH], dense.weights[PATH], atol=1e-6)


@pytest.mark.parametrize(('rho', 'is_fused'), [
    (0., False), (0.4, False), (0.5, True), (0.9, True), (0.99, True), (0.999, False)])
def test_rmsprop_gives_the_numbers_of_keras_with_any_decay(rho, is_fused):
    optimizer = optimizers.RMSProp.Params(rho=rho, momentum=0.5)
    layer = layer_of(optimizer)
    ops = {op.type for op in ops_of_update(layer_of(optimizer))}
    assert ('ResourceApplyRMSProp' in ops) == is_fused
    num_temporaries = learner(optimizer=optimizer).update_bytes(layer.weights[PATH]) / (4 * 4 * 3)
    assert num_temporaries == (1 if is_fused else 3)

    theirs = keras.optimizers.RMSprop(0.1, rho=rho, momentum=0.5)
    weight = tf.Variable(layer.weights[PATH].numpy())
    theirs.build([KerasWeight(weight, PATH)])
    for step in range(20):
        gradient = tf.constant(gradient_of(PATH, step) * 10. ** -(step % 5))
        theirs.update_step(gradient, weight, tf.constant(0.1))
        layer.apply({PATH: gradient})
    np.testing.assert_allclose(layer.weights[PATH], weight, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize('optimizer', [optimizers.SGD.Params(momentum=0.9),
                                       optimizers.RMSProp.Params(momentum=0.9)])
def test_an_update_by_rows_is_forecast_to_hold_more(optimizer):
    weight = layer_of(optimizer).weights[PATH]
    the_learner = learner(optimizer=optimizer)
    assert the_learner.update_bytes(weight, has_rows=True) > the_learner.update_bytes(weight)
