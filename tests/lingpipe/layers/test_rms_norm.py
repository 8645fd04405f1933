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
