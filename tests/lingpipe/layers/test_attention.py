"""Attention: masks against NumPy, causality, and what padding may hold."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers import MultiHeadAttention
from lingpipe.layers.context import Context
from lingpipe.layers.nested import NestedMap, flatten

B, T, S, D, H = 2, 5, 4, 8, 2


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def softmax(scores: np.ndarray) -> np.ndarray:
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def reference(theta: Any, x: np.ndarray, memory: np.ndarray, keep: np.ndarray,
              num_heads: int = H) -> np.ndarray:
    """Computes attention head by head and example by example, in float64.

    `keep` is a bool array [b, T, S].
    """
    w = {name: value.numpy().astype(np.float64) for name, value in theta.items()}
    h = w['wq'].shape[1] // num_heads
    out = np.zeros([*x.shape[:2], num_heads * h])
    for i in range(x.shape[0]):
        q, k, v = (x[i] @ w['wq'] + w['bq'],
                   memory[i] @ w['wk'] + w['bk'],
                   memory[i] @ w['wv'] + w['bv'])
        for head in range(num_heads):
            c = slice(head * h, (head + 1) * h)
            scores = np.where(keep[i], q[:, c] @ k[:, c].T / np.sqrt(h), -np.inf)
            out[i, :, c] = softmax(scores) @ v[:, c]
    return out @ w['wo'] + w['bo']


def made(**values: Any) -> tuple[Any, Any]:
    layer = MultiHeadAttention.Params(input_dim=D, num_heads=H, **values).instantiate()
    theta = layer.initial_theta(1)
    for name in theta:
        if name.startswith('b'):
            theta[name] += normal(*theta[name].shape, seed=ord(name[1]))
    return layer, theta


def test_it_is_the_paper_s_formula_head_by_head() -> None:
    layer, theta = made()
    x = normal(B, T, D)
    np.testing.assert_allclose(layer.fprop(theta, Context(), x=tf.constant(x)),
                               reference(theta, x, x, np.ones([B, T, T], bool)), atol=1e-5)


@pytest.mark.parametrize('dtype', [tf.bool, tf.int32, tf.float32])
def test_a_mask_of_any_type_hides_memory_positions(dtype: tf.DType) -> None:
    layer, theta = made(memory_dim=6)
    x, memory, mask = (
        normal(B, T, D), normal(B, S, 6, seed=1), np.array([[1, 1, 0, 0], [0, 1, 0, 1]]))
    found = layer.fprop(theta, Context(), tf.constant(x), memory=tf.constant(memory),
                        mask=tf.cast(mask, dtype))
    keep = np.broadcast_to(mask[:, None, :] > 0, [B, T, S])
    np.testing.assert_allclose(found, reference(theta, x, memory, keep), atol=1e-5)


def test_causal_attention_sees_itself_and_earlier_positions() -> None:
    layer, theta = made(is_causal=True)
    x = normal(B, T, D)
    keep = np.broadcast_to(np.tril(np.ones([T, T], bool)), [B, T, T])
    np.testing.assert_allclose(layer.fprop(theta, Context(), tf.constant(x)),
                               reference(theta, x, x, keep), atol=1e-5)


def test_causal_and_padding_masks_join() -> None:
    layer, theta = made(is_causal=True)
    x, mask = normal(B, T, D), np.array([[1, 1, 1, 0, 0], [1, 1, 0, 1, 0]])
    keep = np.tril(np.ones([T, T], bool)) & (mask[:, None, :] > 0)
    found = layer.fprop(theta, Context(), tf.constant(x), mask=tf.constant(mask)).numpy()
    is_real = mask > 0  # Queries at padded positions mean nothing.
    np.testing.assert_allclose(found[is_real], reference(theta, x, x, keep)[is_real], atol=1e-5)


@pytest.mark.parametrize('is_self', [True, False])
def test_nan_in_padding_reaches_no_output_and_no_gradient(is_self: bool) -> None:
    layer, theta = made()
    source = normal(B, T, D, seed=2)
    mask = np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]])
    garbage = np.where(mask[:, :, None] > 0, source, np.nan).astype(np.float32)

    def run(source: np.ndarray) -> list[np.ndarray]:
        source = tf.constant(source)
        x = source if is_self else tf.constant(normal(B, T, D))
        with tf.GradientTape() as tape:
            tape.watch([theta, source])
            y = layer.fprop(theta, Context(), x, memory=None if is_self else source,
                            mask=tf.constant(mask))
            real = tf.where(tf.constant(mask[:, :, None] > 0), y, 0.) if is_self else y
        gradients = tape.gradient(real, {'theta': theta, 'source': source})
        return [real, *[g for _, g in flatten(gradients)]]

    for clean, dirty in zip(run(source), run(garbage), strict=True):
        assert np.all(np.isfinite(dirty))
        np.testing.assert_array_equal(clean, dirty)


def test_a_row_with_everything_masked_is_finite_and_moves_no_query() -> None:
    layer, theta = made()
    x = tf.constant(normal(B, T, D))
    memory = tf.constant(normal(B, S, D, seed=1))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer.fprop(theta, Context(), x, memory=memory,
                        mask=tf.constant([[0, 0, 0, 0], [1, 1, 1, 1]]))
    assert np.all(np.isfinite(y))
    gradient = tape.gradient(y, x)
    assert not np.any(gradient[0]) and np.all(gradient[1] != 0)


def test_scores_are_in_float32_for_bfloat16_inputs() -> None:
    """With sums in bfloat16, the 512 weights of a uniform attention would not add up to 1."""
    layer = MultiHeadAttention.Params(input_dim=D, num_heads=H, use_bias=False).instantiate()
    theta = layer.initial_theta()
    theta.wq, theta.wv, theta.wo = tf.zeros_like(theta.wq), tf.eye(D), tf.eye(D)
    y = layer.fprop(theta, Context(), tf.ones([1, 512, D], tf.bfloat16))
    np.testing.assert_array_equal(tf.cast(y, tf.float32), np.ones([1, 512, D]))


def test_causal_attention_to_a_memory_is_refused() -> None:
    layer, theta = made(is_causal=True)
    x = tf.ones([B, T, D])
    with pytest.raises(
            ValueError,
            match='is_causal is for self-attention, but a memory is given; set is_causal=False'):
        layer.fprop(theta, Context(), x, memory=x)


def test_heads_must_divide_the_channels() -> None:
    with pytest.raises(
            ValueError,
            match='num_heads=3 does not divide input_dim=8; choose one that does, or set head_dim'):
        MultiHeadAttention.Params(input_dim=8, num_heads=3).instantiate()


def test_wrong_channels_name_the_layer() -> None:
    layer = MultiHeadAttention.Params(input_dim=8, num_heads=2).instantiate(
        'model.encoder.attention')
    with pytest.raises(ValueError, match=r'model.encoder.attention: memory is \(1, 2, 7\), but its '
                                         r'last dimension must be 8'):
        layer.cost(tf.TensorSpec([1, 2, 8]), memory=tf.TensorSpec([1, 2, 7]))


@pytest.mark.parametrize('dtype', [tf.float32, tf.bfloat16])
@pytest.mark.parametrize('has_mask', [False, True])
def test_no_score_is_so_low_that_it_lets_a_masked_position_through(
        dtype: tf.DType, has_mask: bool) -> None:
    """Masked scores were -1e9, so among scores of -1e10 those of the future were the largest."""
    layer = MultiHeadAttention.Params(input_dim=D, num_heads=H, use_bias=False,
                                      is_causal=True).instantiate()
    theta = layer.initial_theta()
    theta.wq, theta.wk, theta.wv, theta.wo = 1e5 * tf.eye(D), -1e5 * tf.eye(D), tf.eye(D), tf.eye(D)
    x = np.abs(normal(B, T, D)) + 1
    mask = tf.constant([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]) if has_mask else None
    future = x.copy()
    future[:, 3:] = 7.

    y, other = (
        tf.cast(layer.fprop(theta, Context(), tf.cast(v, dtype), mask=mask), tf.float32).numpy()
        for v in (x, future))
    np.testing.assert_array_equal(y[:, :3], other[:, :3])
    # The first position sees only itself.
    np.testing.assert_allclose(y[:, 0], tf.cast(tf.cast(x[:, 0], dtype), tf.float32), rtol=1e-6)


def test_decoding_sees_no_masked_memory_either() -> None:
    layer = MultiHeadAttention.Params(input_dim=D, num_heads=H, use_bias=False).instantiate()
    theta = layer.initial_theta()
    theta.wq, theta.wk, theta.wv, theta.wo = 1e5 * tf.eye(D), -1e5 * tf.eye(D), tf.eye(D), tf.eye(D)
    x, memory = (tf.constant(np.abs(normal(B, T, D)) + 1),
                 tf.constant(np.abs(normal(B, S, D, seed=1)) + 1))
    kept = layer.prepare(theta, Context(), memory=memory,
                         mask=tf.constant([[1, 0, 0, 0], [0, 0, 0, 0]]))
    y, _ = layer.decode(theta, Context(), kept, NestedMap(), x)
    np.testing.assert_allclose(y[0], np.broadcast_to(memory[0, 0], [T, D]), rtol=1e-6)
    assert np.all(np.isfinite(y[1]))   # Everything is masked.
