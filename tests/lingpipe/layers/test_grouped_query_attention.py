"""Grouped-query attention against NumPy, in blocks, of documents, decoded, and its memory."""
from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import pricing
from lingpipe.layers import GroupedQueryAttention
from lingpipe.layers.context import Context, DecodingContext
from lingpipe.layers.low_rank import Adapters
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.rotary import RotaryScaling

B, T, D, H, G = 2, 7, 8, 4, 2
h = D // H
DOCUMENTS = np.array([[0, 0, 0, 1, 1, 1, 1], [3, 3, 4, 4, 4, 5, 5]], np.int32)


def turned(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Rotates the channels of a head, x [T, h], as complex numbers."""
    angles = positions[:, np.newaxis] / 10_000. ** (2 * np.arange(h // 2) / h)
    y = (x[:, :h // 2] + 1j * x[:, h // 2:]) * np.exp(1j * angles)
    return np.concatenate([y.real, y.imag], -1)


def reference(theta: Any, x: np.ndarray, is_seen: np.ndarray) -> np.ndarray:
    """Computes attention head by head, in float64. `is_seen` is [b, T, T] of bool."""
    w = {name: value.numpy().astype(np.float64) for name, value in theta.items()}
    out = np.zeros([B, T, D])
    for i in range(B):
        for head in range(H):
            own, group = slice(head * h, (head + 1) * h), head // (H // G)
            shared = slice(group * h, (group + 1) * h)
            q = turned(x[i] @ w['wq'][:, own], np.arange(T))
            k = turned(x[i] @ w['wk'][:, shared], np.arange(T))
            weights = np.exp(np.where(is_seen[i], q @ k.T / np.sqrt(h), -np.inf))
            out[i, :, own] = weights / weights.sum(-1, keepdims=True) @ (
                x[i] @ w['wv'][:, shared])
    return out @ w['wo']


def made(**fields: Any) -> tuple[Any, Any, np.ndarray]:
    layer = GroupedQueryAttention.Params(input_dim=D, num_heads=H, num_groups=G,
                                         **fields).instantiate()
    x = np.random.default_rng(0).normal(size=[B, T, D]).astype(np.float32)
    return layer, layer.initial_theta(1), x


@pytest.mark.parametrize('block_size', [1, 2, 3, 7])
@pytest.mark.parametrize('window', [0, 1, 2, 3, 4, 6, 7, 9])
@pytest.mark.parametrize('has_documents', [False, True])
def test_it_is_the_formula_head_by_head_in_blocks_of_any_size(
        block_size: int, window: int, has_documents: bool) -> None:
    layer, theta, x = made(block_size=block_size, window=window)
    # A position sees itself and, with a window, the window - 1 positions before it.
    distances = np.arange(T)[:, np.newaxis] - np.arange(T)
    is_seen = np.broadcast_to((distances >= 0) & (distances < (window or T)), [B, T, T])
    documents = {}
    if has_documents:
        is_seen = is_seen & (DOCUMENTS[:, :, np.newaxis] == DOCUMENTS[:, np.newaxis])
        documents = {'documents': tf.constant(DOCUMENTS)}
    np.testing.assert_allclose(layer.fprop(theta, Context(), tf.constant(x), **documents),
                               reference(theta, x, is_seen), atol=1e-5)


def test_packed_documents_give_what_each_gives_alone() -> None:
    layer, theta, x = made(block_size=2)
    positions = np.array([[0, 1, 2, 0, 1, 2, 3], [0, 1, 0, 1, 2, 0, 1]])
    packed = layer.fprop(theta, Context(), tf.constant(x), tf.constant(positions),
                         tf.constant(DOCUMENTS))
    alone = [layer.fprop(theta, Context(), tf.constant(x[:1, part]))
             for part in (slice(0, 3), slice(3, 7))]
    np.testing.assert_allclose(packed[:1], tf.concat(alone, 1), atol=1e-5)


def test_documents_may_have_ids_of_64_bits() -> None:
    layer, theta, x = made(block_size=2)
    arguments = Context(), tf.constant(x), None
    wide = np.where(DOCUMENTS == 0, 2 ** 32 + 1, DOCUMENTS.astype(np.int64))   # 1 in 32 bits.
    np.testing.assert_array_equal(
        layer.fprop(theta, *arguments, tf.constant(wide)),
        layer.fprop(theta, *arguments, tf.constant(DOCUMENTS)))


@pytest.mark.parametrize('fields', [
    {}, {'biases': 'qkv', 'rotary_scaling': RotaryScaling(factor=3., length=16)},
    {'biases': 'all', 'normalises_heads': True}, {'adapters': Adapters(rank=2)},
    {'window': 1}, {'window': 3}, {'window': 7}],
    ids=['plain', 'biases of q, k, v', 'all', 'adapters', 'window of 1', 'window of 3',
         'window of 7'])
def test_position_by_position_and_a_prompt_at_once_give_what_fprop_gives(
        fields: dict[str, Any]) -> None:
    layer, theta, x = made(block_size=3, **fields)
    theta = NestedMap({name: value + 0.1 * tf.cast(tf.range(tf.size(value)), tf.float32)
                       if tf.is_tensor(value) and value.shape.rank == 1 else value
                       for name, value in theta.items()})
    for name, adapter in theta.items():
        if name.endswith('_adapter'):
            adapter.b = tf.fill(adapter.b.shape, 0.1)
    expected = layer.fprop(theta, Context(), tf.constant(x))
    past = None
    for position in range(T):
        ctx = DecodingContext(tf.constant(position), 1, 1, T)
        past = past or layer.initial_past(B, ctx, x=tf.TensorSpec([B, 1, D]))
        y, past = layer.decode(theta, ctx, NestedMap(), past, tf.constant(x[:, position:][:, :1]))
        np.testing.assert_allclose(y[:, 0], expected[:, position], atol=1e-5)
    window = fields.get('window')
    assert past.k.shape == [B, 1, G, window - 1 if window else T, h]   # what the next one sees

    for passes in [T], [4, 3], [2, 2, 3]:
        past, first, found = None, 0, []
        for num in passes:
            ctx = DecodingContext(tf.constant(first), 1, 1, T)
            past = past or layer.initial_past(B, ctx, x=tf.TensorSpec([B, 1, D]))
            y, past = layer.prefill(theta, ctx, NestedMap(), past,
                                    tf.constant(x[:, first:first + num]))
            found.append(y)
            first += num
        np.testing.assert_allclose(tf.concat(found, 1), expected, atol=1e-5)


@pytest.mark.parametrize('window', [0, 1, 3])
def test_texts_that_start_late_are_what_each_is_alone(window: int) -> None:
    """Padding before them is seen by none, within a window and without."""
    layer, theta, x = made(window=window)
    starts = [3, 0]
    alone = [layer.fprop(theta, Context(), tf.constant(x[i:i + 1, start:]))[0]
             for i, start in enumerate(starts)]
    past, first, found = None, 0, []
    for num in 4, 1, 1, 1:
        ctx = DecodingContext(tf.constant(first), 1, 1, T, starts=tf.constant(starts))
        past = past or layer.initial_past(B, ctx, x=tf.TensorSpec([B, 1, D]))
        y, past = (layer.prefill if num > 1 else layer.decode)(
            theta, ctx, NestedMap(), past, tf.constant(x[:, first:first + num]))
        found.append(y)
        first += num
    for row, start, expected in zip(tf.concat(found, 1), starts, alone, strict=True):
        np.testing.assert_allclose(row[start:], expected, atol=1e-5)


def test_blocks_outside_of_the_window_cost_nothing() -> None:
    """The work of 16 blocks of 64 positions with a window of 65 is that of two turns each."""
    x = tf.TensorSpec([1, 1024, D])

    def attention_flops(**fields: Any) -> tuple[float, float]:
        layer = GroupedQueryAttention.Params(
            input_dim=D, num_heads=H, block_size=64, **fields).instantiate()
        return layer.cost(x).flops, pricing.traced_cost(layer, x=x).flops

    of_one_turn = attention_flops(window=1)
    full, two_turns, three_turns = (
        np.array(attention_flops(window=window)) - of_one_turn for window in (0, 65, 66))
    np.testing.assert_allclose(full / (16 * 17 // 2 - 16), two_turns / 15, rtol=0.02)
    np.testing.assert_allclose(full / (16 * 17 // 2 - 16), three_turns / 29, rtol=0.02)


def test_memory_is_linear_in_the_length() -> None:
    """Neither pass makes a tensor of [T, T], in its loops neither."""
    layer = GroupedQueryAttention.Params(input_dim=D, num_heads=2, block_size=16).instantiate()

    @tf.function(autograph=False)
    def gradients(x: tf.Tensor) -> Any:
        y = layer.fprop(layer.initial_theta(), Context(), x)
        return tf.gradients(y, x)

    graph = gradients.get_concrete_function(tf.TensorSpec([1, 1024, D])).graph
    graphs = [graph]
    while graphs:
        graph = graphs.pop()
        graphs += [inner for op in graph.get_operations() for inner in pricing.ops.bodies(op)]
        for tensor in (tensor for op in graph.get_operations() for tensor in op.outputs):
            sizes = [size or 1 for size in tensor.shape] if tensor.shape.rank else []
            assert math.prod(sizes) < 4 * 1024 * D, tensor
