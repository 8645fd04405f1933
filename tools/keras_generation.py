"""Generation with the network of LanguageModel, written in Keras, to compare with.

The whole of it is one tf.function: a prompt is read in one pass, then a loop writes id by id, the
best every time. Keys and values lie in arrays of the final length, into which each pass writes its
own, as in the models of keras-hub. Without a cache, the network reads all ids again for each new
one.

Shapes: n prompts, P ids of each, t ids of a pass, L ids at the end, D model, H heads, G groups, h
channels of a head.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from lingpipe.tasks.text.language_model import LanguageModel


class KerasGenerator:
    """Writes ids with weights by the paths of lingpipe, as keras_language_model returns them."""

    def __init__(self, params: LanguageModel.Params, variables: Mapping[str, keras.Variable],
                 length: int):
        """`length` is L."""
        self._p, self._variables, self._length = params, variables, length
        self._head_dim = params.model_dim // params.num_heads

    def cached(self, prompts: Any) -> Any:
        """Ids [n, L] that begin with the prompts [n, P]; keys and values are kept."""
        n, start = prompts.shape
        shape = [n, self._p.num_groups, self._length, self._head_dim]
        caches = tuple(ops.zeros(shape) for _ in range(2 * self._p.num_layers))
        last, caches = self._last_logits(prompts, 0, caches)
        ids = ops.slice_update(ops.zeros([n, self._length], 'int32'), [0, 0], prompts)

        def write(position: Any, ids: Any, last: Any, *caches: Any) -> tuple[Any, ...]:
            new = ops.cast(ops.argmax(last, -1), 'int32')[:, None]
            ids = ops.slice_update(ids, [0, position], new)
            last, caches = self._last_logits(new, position, caches)
            return position + 1, ids, last, *caches

        _, ids, last, *_ = ops.while_loop(
            lambda position, *_: position < self._length - 1, write, (start, ids, last, *caches))
        new = ops.cast(ops.argmax(last, -1), 'int32')[:, None]
        return ops.slice_update(ids, [0, self._length - 1], new)

    def uncached(self, prompts: Any) -> Any:
        """The same, but each new id costs a pass over all L positions."""
        n, start = prompts.shape
        ids = ops.slice_update(ops.zeros([n, self._length], 'int32'), [0, 0], prompts)
        shape = [n, self._p.num_groups, self._length, self._head_dim]
        nothing = tuple(ops.zeros(shape) for _ in range(2 * self._p.num_layers))

        def write(position: Any, ids: Any) -> tuple[Any, Any]:
            x, _ = self._hidden(ids, 0, nothing)
            last = self._logits(ops.take(x, position - 1, 1))
            new = ops.cast(ops.argmax(last, -1), 'int32')[:, None]
            return position + 1, ops.slice_update(ids, [0, position], new)

        return ops.while_loop(lambda position, _: position < self._length, write, (start, ids))[1]

    def _last_logits(self, ids: Any, position: Any, caches: Any) -> tuple[Any, Any]:
        """The logits [n, V] after ids [n, t] that begin at `position`, and the new caches."""
        x, caches = self._hidden(ids, position, caches)
        return self._logits(x[:, -1]), caches

    def _hidden(self, ids: Any, position: Any, caches: Any) -> tuple[Any, Any]:
        """What the last layer gives, [n, t, D], and the new caches."""
        p = self._p
        x = ops.take(self._weight('embedding/w'), ids, 0) * p.model_dim ** 0.5
        new_caches: list[Any] = []
        for i in range(p.num_layers):
            h = self._normalised(x, f'attention_{i}/norm/scale')
            y, *new = self._attention(h, f'attention_{i}/body', position, *caches[2 * i:2 * i + 2])
            x, new_caches = x + y, new_caches + new
            h = self._normalised(x, f'ffn_{i}/norm/scale')
            gate, up = (h @ self._weight(f'ffn_{i}/body/w_{name}') for name in ('gate', 'up'))
            x = x + (ops.silu(gate) * up) @ self._weight(f'ffn_{i}/body/w_down')
        return x, tuple(new_caches)

    def _attention(self, x: Any, path: str, position: Any, k_cache: Any, v_cache: Any) -> tuple[
            Any, Any, Any]:
        """Attention of x [n, t, D] to all before and itself, and the new caches [n, G, L, h]."""
        p = self._p
        n, t, dim = x.shape
        places = ops.arange(t) + position
        q = self._rotated(self._heads(x, f'{path}/wq', p.num_heads), places)   # [n, H, t, h]
        k = self._rotated(self._heads(x, f'{path}/wk', p.num_groups), places)
        k_cache = ops.slice_update(k_cache, [0, 0, position, 0], k)
        v_cache = ops.slice_update(v_cache, [0, 0, position, 0],
                                   self._heads(x, f'{path}/wv', p.num_groups))

        q = ops.reshape(q, [n, p.num_groups, -1, self._head_dim])   # [n, G, r t, h]
        scores = ops.matmul(q, ops.transpose(k_cache, [0, 1, 3, 2])) * self._head_dim ** -0.5
        scores = ops.reshape(scores, [n, p.num_heads, t, self._length])
        is_seen = ops.arange(self._length) <= places[:, None]
        weights = ops.softmax(ops.where(is_seen, scores, -1e9))
        weights = ops.reshape(weights, [n, p.num_groups, -1, self._length])
        y = ops.reshape(ops.matmul(weights, v_cache), [n, p.num_heads, t, self._head_dim])
        y = ops.reshape(ops.transpose(y, [0, 2, 1, 3]), [n, t, dim])
        return y @ self._weight(f'{path}/wo'), k_cache, v_cache

    def _heads(self, x: Any, path: str, num_heads: int) -> Any:
        """Projects [n, t, D] and makes heads of it, [n, heads, t, h]."""
        y = ops.reshape(x @ self._weight(path), [*x.shape[:2], num_heads, self._head_dim])
        return ops.transpose(y, [0, 2, 1, 3])

    def _rotated(self, x: Any, places: Any) -> Any:
        """Rotates [n, heads, t, h] by the positions [t]."""
        half = self._head_dim // 2
        periods = self._p.rotary_base ** (2. * ops.arange(half, dtype='float32') / (2 * half))
        angles = ops.cast(places, 'float32')[:, None] / periods
        cos, sin = ops.cos(angles), ops.sin(angles)
        a, b = x[..., :half], x[..., half:]
        return ops.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

    def _normalised(self, x: Any, path: str) -> Any:
        return ops.rms_normalization(x, self._weight(path), epsilon=1e-5)

    def _logits(self, x: Any) -> Any:
        return self._normalised(x, 'norm/scale') @ self._weight('softmax/w')

    def _weight(self, path: str) -> Any:
        return ops.convert_to_tensor(self._variables[f'model/{path}'])


def keras_generate(params: LanguageModel.Params, variables: Mapping[str, keras.Variable],
                   length: int, has_cache: bool = True, jit: bool = False) -> Any:
    """A function of prompts [n, P] to ids [n, L], compiled by XLA if `jit`."""
    generator = KerasGenerator(params, variables, length)
    return tf.function(generator.cached if has_cache else generator.uncached, jit_compile=jit)
