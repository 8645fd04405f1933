"""RMSNorm against NumPy, and its written-out gradient against the automatic one in float64."""
from __future__ import annotations

import numpy as np
import tensorflow as tf

from lingpipe.layers import RMSNorm
from lingpipe.layers.context import Context


def test_it_and_its_gradients_are_those_of_the_formula_in_float64() -> None:
    rng = np.random.default_rng(0)
    x, scale, dy = rng.normal(size=[3, 4, 16]), rng.normal(size=[16]), rng.normal(size=[3, 4, 16])
    layer = RMSNorm.Params(dim=16, epsilon=1e-2).instantiate()
    values = {'x': tf.constant(x, tf.float32), 'scale': tf.constant(scale, tf.float32)}
    with tf.GradientTape() as tape:
        tape.watch(values)
        y = layer.fprop(layer.theta({'rmsnorm/scale': values['scale']}), Context(), values['x'])
    found = tape.gradient(y, values, output_gradients=tf.constant(dy, tf.float32))

    exact = {'x': tf.constant(x), 'scale': tf.constant(scale)}
    with tf.GradientTape() as tape:
        tape.watch(exact)
        mean_square = tf.reduce_mean(exact['x'] ** 2, -1, keepdims=True)
        expected = exact['x'] / tf.sqrt(mean_square + 1e-2) * exact['scale']
    np.testing.assert_allclose(y, x / np.sqrt((x ** 2).mean(-1, keepdims=True) + 1e-2) * scale,
                               atol=1e-5)
    for name, gradient in tape.gradient(expected, exact, output_gradients=tf.constant(dy)).items():
        np.testing.assert_allclose(found[name], gradient, atol=1e-4, err_msg=name)


def test_a_zero_centered_scale_is_1_plus_the_weight_which_begins_at_0() -> None:
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=[3, 16]), rng.normal(size=[16])
    layer = RMSNorm.Params(dim=16, epsilon=1e-2, is_zero_centered=True).instantiate()
    ctx, x_32 = Context(), tf.constant(x, tf.float32)
    plain = x / np.sqrt((x ** 2).mean(-1, keepdims=True) + 1e-2)
    y = layer.fprop(layer.theta({'rmsnorm/scale': tf.constant(weight, tf.float32)}), ctx, x_32)
    np.testing.assert_allclose(y, plain * (1 + weight), atol=1e-5)
    first, = (one.initial_value(0) for one in layer.weights())
    np.testing.assert_array_equal(first, np.zeros([16]))
