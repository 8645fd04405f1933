"""The network of LanguageModel as somebody would write it in Keras, to compare with.

Its attention makes all scores [T, T], as Keras' own attention does; there are no documents.

Shapes: b batch, T tokens, D model, H heads, G groups, h channels of a head.
"""
from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from lingpipe.tasks.text.language_model import LanguageModel


class RotaryAttention(keras.layers.Layer):   # type: ignore[misc]  # Keras has no types.
    """Causal self-attention with rotary positions and groups; [b, T, D] -> [b, T, D]."""

    def __init__(self, num_heads: int, num_groups: int, base: float, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_heads, self.num_groups, self.base = num_heads, num_groups, base

    def build(self, shape: Any) -> None:
        """Makes the four matrices."""
        dim = shape[-1]
        width = dim // self.num_heads * self.num_groups
        self.wq = self.add_weight(shape=(dim, dim), name='wq')
        self.wk = self.add_weight(shape=(dim, width), name='wk')
        self.wv = self.add_weight(shape=(dim, width), name='wv')
        self.wo = self.add_weight(shape=(dim, dim), name='wo')

    def call(self, x: Any) -> Any:
        """[b, T, D] -> [b, T, D]."""
        length, dim = x.shape[1:]
        q = self._rotated(self._heads(x @ self.wq, self.num_heads))  # [b, H, T, h]
        k = self._rotated(self._heads(x @ self.wk, self.num_groups))
        v = self._heads(x @ self.wv, self.num_groups)
        k, v = (ops.repeat(value, self.num_heads // self.num_groups, 1) for value in (k, v))

        scores = ops.matmul(q, ops.transpose(k, [0, 1, 3, 2])) * (dim // self.num_heads) ** -0.5
        is_seen = np.tril(np.ones([length, length], bool))
        weights = ops.softmax(ops.where(is_seen, scores, -1e9))
        y = ops.transpose(ops.matmul(weights, v), [0, 2, 1, 3])
        return ops.reshape(y, [-1, length, dim]) @ self.wo

    def _heads(self, x: Any, num_heads: int) -> Any:
        """[b, T, H h] -> [b, H, T, h]."""
        x = ops.reshape(x, [-1, x.shape[1], num_heads, x.shape[2] // num_heads])
        return ops.transpose(x, [0, 2, 1, 3])

    def _rotated(self, x: Any) -> Any:
        """Rotates [b, H, T, h] by the positions."""
        length, h = x.shape[2:]
        angles = np.arange(length)[:, np.newaxis] / self.base ** (2 * np.arange(h // 2) / h)
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        a, b = x[..., :h // 2], x[..., h // 2:]
        return ops.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def keras_language_model(p: LanguageModel.Params, length: int) -> tuple[
        keras.Model, dict[str, keras.Variable]]:
    """Returns the model, from ids [b, T] to logits, and its variables by the paths of lingpipe.

    Only what bench_text measures is there: untied tables, no experts.
    """
    layers: dict[str, Any] = {}

    def layer(path: str, made: Any) -> Any:
        layers[path] = made
        return made

    def dense(path: str, units: int) -> Any:
        return layer(path, keras.layers.Dense(units, use_bias=False))

    def norm(path: str) -> Any:
        return layer(path, keras.layers.RMSNormalization(epsilon=1e-5))

    ids = keras.Input([length], dtype='int32')
    x = layer('embedding/w', keras.layers.Embedding(p.vocab_size, p.model_dim))(ids)
    x = x * p.model_dim ** 0.5
    for i in range(p.num_layers):
        attention = layer(f'attention_{i}/body', RotaryAttention(p.num_heads, p.num_groups,
                                                                 p.rotary_base))
        x = x + attention(norm(f'attention_{i}/norm/scale')(x))
        h = norm(f'ffn_{i}/norm/scale')(x)
        gate = dense(f'ffn_{i}/body/w_gate', p.hidden_dim)(h)
        up = dense(f'ffn_{i}/body/w_up', p.hidden_dim)(h)
        x = x + dense(f'ffn_{i}/body/w_down', p.model_dim)(ops.silu(gate) * up)
    logits = dense('softmax/w', p.vocab_size)(norm('norm/scale')(x))

    variables: dict[str, keras.Variable] = {}
    for path, made in layers.items():
        if isinstance(made, RotaryAttention):
            variables |= {f'model/{path}/{v.name}': v for v in made.trainable_variables}
        else:
            variables[f'model/{path}'], = made.trainable_variables
    return keras.Model(ids, logits), variables
