"""LayerNorm: its values, and its written-out gradient against the automatic one in float64."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers import LayerNorm
from lingpipe.layers.context import Context


@pytest.mark.parametrize('mean', [0., 1e3])
def test_it_and_its_gradients_are_those_of_the_formula_in_float64(mean: float) -> None:
    rng = np.random.default_rng(0)
    x, scale, offset, dy = (rng.normal(size=shape)
                            for shape in ([3, 4, 16], [16], [16], [3, 4, 16]))
    x = (x + mean).astype(np.float32).astype(np.float64)
    layer = LayerNorm.Params(dim=16).instantiate()
    inputs = {name: tf.constant(value, tf.float32)
              for name, value in [('x', x), ('scale', scale), ('offset', offset)]}
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = layer.fprop(
            layer.theta({'layernorm/scale': inputs['scale'], 'layernorm/offset': inputs['offset']}),
            Context(), inputs['x'])
    found = tape.gradient(y, inputs, output_gradients=tf.constant(dy, tf.float32))

    exact = {name: tf.constant(value)
             for name, value in [('x', x), ('scale', scale), ('offset', offset)]}
    with tf.GradientTape() as tape:
        tape.watch(exact)
        centered = exact['x'] - tf.reduce_mean(exact['x'], -1, keepdims=True)
        variance = tf.reduce_mean(centered ** 2, -1, keepdims=True)
        expected = centered / tf.sqrt(variance + 1e-5) * exact['scale'] + exact['offset']
    tolerance = 1e-5 if mean == 0 else 2e-3  # A float32 of 1000 has an error of 6e-5.
    np.testing.assert_allclose(y, expected, atol=tolerance)
    for name, gradient in tape.gradient(expected, exact, output_gradients=tf.constant(dy)).items():
        np.testing.assert_allclose(found[name], gradient, atol=10 * tolerance, err_msg=name)


def test_statistics_of_bfloat16_are_float32() -> None:
    """In bfloat16, 256 + 1 is 256, so sums would stop growing."""
    x = tf.cast(tf.reshape(tf.tile([1., 3.], [512]), [1, 1024]), tf.bfloat16)
    layer = LayerNorm.Params(dim=1024).instantiate()
    y = layer.fprop(layer.initial_theta(), Context(), x)
    np.testing.assert_array_equal(tf.cast(y, tf.float32), np.tile([-1., 1.], 512)[np.newaxis])
