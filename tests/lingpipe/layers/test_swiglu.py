"""SwiGLU: the formula, whole and in shards, and the gradient that is written out."""
from __future__ import annotations

import numpy as np
import tensorflow as tf

from lingpipe.layers import SwiGLU, split
from lingpipe.layers.context import Context
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.swiglu import gated_by_gelu


def test_shards_add_up_to_the_paper_s_formula() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=[2, 3, 4]).astype(np.float32)
    w_gate, w_up, w_down = (rng.normal(size=shape).astype(np.float32)
                            for shape in ([4, 5], [4, 5], [5, 4]))
    gate = x @ w_gate
    expected = (gate / (1 + np.exp(-gate)) * (x @ w_up)) @ w_down

    params = SwiGLU.Params(name='ffn', input_dim=4, hidden_dim=5, writes='y')
    partial = {}
    for shard, units in zip(split(params, 2), (slice(0, 2), slice(2, 5)), strict=True):
        theta = NestedMap(w_gate=w_gate[:, units], w_up=w_up[:, units], w_down=w_down[units])
        y = shard.instantiate().fprop(theta, Context(), tf.constant(x), **partial)
        partial = {'partial': y}
    np.testing.assert_allclose(y, expected, atol=1e-5)


def test_the_gate_of_gemma_and_its_gradients_are_those_of_gelu_in_float64() -> None:
    gate, up, dy = np.random.default_rng(0).normal(size=[3, 64]) * 3
    with tf.GradientTape() as tape:
        values = {'gate': tf.constant(gate), 'up': tf.constant(up)}
        tape.watch(values)
        y = gated_by_gelu(values['gate'], values['up'])
    gradients = tape.gradient(y, values, output_gradients=tf.constant(dy))
    with tf.GradientTape() as tape:
        tape.watch(values)
        x = values['gate']
        u = np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)
        expected = x / 2 * (1 + tf.tanh(u)) * values['up']
    np.testing.assert_allclose(y, expected, atol=1e-12)
    for name, gradient in tape.gradient(expected, values, output_gradients=tf.constant(dy)).items():
        np.testing.assert_allclose(gradients[name], gradient, atol=1e-12, err_msg=name)
