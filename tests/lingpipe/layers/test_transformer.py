"""Transformer layers: they equal the formulas, with and without a memory."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers import TransformerDecoderLayer, TransformerEncoderLayer, split_feed_forward
from lingpipe.layers.context import Context, DecodingContext
from lingpipe.layers.low_rank import Adapters
from lingpipe.layers.nested import NestedMap, map_leaves

D, H, F = 8, 2, 16


def perturbed(theta: Any) -> Any:
    rng = np.random.default_rng(0)
    return map_leaves(lambda t: t + tf.constant(rng.normal(scale=0.1, size=t.shape), tf.float32),
                      theta)


def norm(x: np.ndarray, w: Any) -> np.ndarray:
    return ((x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w.scale
            + w.offset)


def attention(x: np.ndarray, memory: np.ndarray, w: Any, is_causal: bool = False) -> np.ndarray:
    """Computes one example head by head; column c belongs to head c // (D / H)."""
    q, k, v = x @ w.wq + w.bq, memory @ w.wk + w.bk, memory @ w.wv + w.bv
    out = np.zeros([len(x), D])
    for head in range(H):
        c = np.arange(D)[np.arange(D) // (D // H) == head]
        scores = q[:, c] @ k[:, c].T / np.sqrt(D / H)
        if is_causal:
            scores[np.triu_indices(len(x), 1)] = -np.inf
        e = np.exp(scores - scores.max(-1, keepdims=True))
        out[:, c] = e / e.sum(-1, keepdims=True) @ v[:, c]
    return out @ w.wo + w.bo


def ffn(x: np.ndarray, w: Any) -> np.ndarray:
    return np.maximum(x @ w.w1 + w.b1, 0) @ w.w2 + w.b2


def in_float64(theta: Any) -> NestedMap:
    return map_leaves(lambda t: t.numpy().astype(np.float64), theta)


def test_an_encoder_layer_is_the_reference_stack() -> None:
    layer = TransformerEncoderLayer.Params(model_dim=D, num_heads=H, hidden_dim=F).instantiate()
    theta = perturbed(layer.initial_theta())
    x = np.random.default_rng(1).normal(size=[3, 5, D])
    w = in_float64(theta)
    for example, found in zip(x, layer.fprop(theta, Context(), tf.constant(x, tf.float32)),
                              strict=True):
        h = norm(example, w.attention_norm)
        y = example + attention(h, h, w.attention)
        np.testing.assert_allclose(found, y + ffn(norm(y, w.ffn_norm), w.ffn), atol=1e-5)


def test_a_decoder_layer_looks_back_and_at_the_memory() -> None:
    layer = TransformerDecoderLayer.Params(model_dim=D, num_heads=H, hidden_dim=F,
                                           memory_dim=6).instantiate()
    theta = perturbed(layer.initial_theta())
    rng = np.random.default_rng(1)
    x, memory = rng.normal(size=[3, 5, D]), rng.normal(size=[3, 4, 6])
    w = in_float64(theta)
    found = layer.fprop(theta, Context(), tf.constant(x, tf.float32),
                        memory=tf.constant(memory, tf.float32))
    for i in range(3):
        h = norm(x[i], w.attention_norm)
        y = x[i] + attention(h, h, w.attention, is_causal=True)
        y = y + attention(norm(y, w.cross_norm), memory[i], w.cross)
        np.testing.assert_allclose(found[i], y + ffn(norm(y, w.ffn_norm), w.ffn), atol=1e-5)


def test_adapters_of_a_feed_forward_part_that_is_not_there_are_refused() -> None:
    """The layer had no adapter at all, and trained all of its own weights."""
    layer = TransformerEncoderLayer.Params(model_dim=8, num_heads=2, hidden_dim=6,
                                           adapters=Adapters(rank=2, targets=('w1',)))
    trained = {weight.path.rpartition('/')[0] for weight in
               split_feed_forward(layer, 2).instantiate('layer').weights() if weight.is_trainable}
    assert {path for path in trained if '/ffn_' in path and 'norm' not in path} == {
        'layer/ffn_0/w1_adapter', 'layer/ffn_1/w1_adapter'}
    with pytest.raises(ValueError, match="targets has 'w1', but the projections of Transformer "
                                         'layers without a feed-forward part are wq, wk, wv, wo;'):
        layer.set(hidden_dim=0).instantiate('layer')


def test_adapters_add_to_the_weights_of_all_parts_in_training_and_decoding() -> None:
    """The layer without adapters, whose weights have the products added, computes the same."""
    plain = TransformerDecoderLayer.Params(model_dim=D, num_heads=H, hidden_dim=F,
                                           memory_dim=6).instantiate('layer')
    layer = plain.params.copy().set(adapters=Adapters(rank=2, alpha=3.)).instantiate('layer')
    theta = perturbed(layer.initial_theta())
    merged = NestedMap({part: NestedMap({
        name: w if f'{name}_adapter' not in theta[part] else
        w + 3 / 2 * theta[part][f'{name}_adapter'].a @ theta[part][f'{name}_adapter'].b
        for name, w in theta[part].items() if not name.endswith('_adapter')}) for part in theta})
    assert {part: len(theta[part]) - len(merged[part]) for part in theta} == {
        'attention': 4, 'attention_norm': 0, 'cross': 4, 'cross_norm': 0, 'ffn': 2, 'ffn_norm': 0}

    rng = np.random.default_rng(1)
    x, memory = (tf.constant(rng.normal(size=shape), tf.float32) for shape in ([3, 5, D],
                                                                               [3, 4, 6]))
    expected = plain.fprop(merged, Context(), x, memory=memory)
    np.testing.assert_allclose(layer.fprop(theta, Context(), x, memory=memory), expected, atol=1e-5)
    ctx = DecodingContext(0, 1, 1, 5)
    kept, past = layer.prepare(theta, ctx, memory), layer.initial_past(3, ctx, x=x)
    for t in range(5):
        y, past = layer.decode(theta, ctx, kept, past, x[:, t:t + 1])
        np.testing.assert_allclose(y[:, 0], expected[:, t], atol=1e-5)


def test_the_weights_are_found_by_their_paths() -> None:
    layer = TransformerEncoderLayer.Params(model_dim=D, num_heads=H, hidden_dim=F).instantiate(
        'layer_0')
    assert {w.path: w.shape for w in layer.weights()} == {
        'layer_0/attention_norm/scale': (8,), 'layer_0/attention_norm/offset': (8,),
        'layer_0/attention/wq': (8, 8), 'layer_0/attention/bq': (8,),
        'layer_0/attention/wk': (8, 8), 'layer_0/attention/bk': (8,),
        'layer_0/attention/wv': (8, 8), 'layer_0/attention/bv': (8,),
        'layer_0/attention/wo': (8, 8), 'layer_0/attention/bo': (8,),
        'layer_0/ffn_norm/scale': (8,), 'layer_0/ffn_norm/offset': (8,), 'layer_0/ffn/w1': (8, 16),
        'layer_0/ffn/b1': (16,), 'layer_0/ffn/w2': (16, 8), 'layer_0/ffn/b2': (8,)}


def test_ffn_init_scale_scales_the_variance() -> None:
    def variance(scale: float) -> float:
        layer = TransformerEncoderLayer.Params(model_dim=64, num_heads=H, hidden_dim=256,
                                               ffn_init_scale=scale).instantiate('x')
        return float(tf.math.reduce_variance(layer.initial_theta().ffn.w1))
    assert variance(0.25) == pytest.approx(variance(1) / 4)


@pytest.mark.parametrize('memory_dim, memory, found',
                         [(6, None, 'memory_dim=6, but no memory is read'),
                          (0, tf.TensorSpec([1, 2, 6]), 'memory_dim=0, but a memory is read')])
def test_memory_and_memory_dim_go_together(memory_dim: int, memory: Any, found: str) -> None:
    layer = TransformerDecoderLayer.Params(model_dim=D, num_heads=H, hidden_dim=F,
                                           memory_dim=memory_dim).instantiate()
    with pytest.raises(
            ValueError,
            match=f"{found}; set memory_dim and reads={{'memory': name of a value}}, or neither"):
        layer.cost(tf.TensorSpec([1, 2, D]), memory=memory)
