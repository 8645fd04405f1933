"""Embedding and PositionEmbedding: vectors of ids and of positions.

Shapes: b micro-batch, T time, D model, V vocabulary.
"""
from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf

from lingpipe.cost import Cost
from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layer import Layer
from lingpipe.layers.shapes import check_last_dim, dims
from lingpipe.nested import NestedMap
from lingpipe.tracing import as_spec, num_elements, static_shape


class Embedding(Layer):
    """Row ids[...] of the table w [V, D]; ids [...] of an int type -> [..., D].

    Ids are not checked: on a CPU one outside the table is an error of TensorFlow, on a GPU it gives zeros. The gradient is
    tf.IndexedSlices, which tf.convert_to_tensor makes dense.
    """

    class Params(Layer.Params):
        vocab_size: int = field(REQUIRED, 'V, the number of rows.')
        dim: int = field(REQUIRED, 'D, the channels of a row.')
        dtype: str = field('float32', "Of the output, and so of the layers after it: 'float32' or 'bfloat16'.")
        is_scaled: bool = field(False, 'Whether the output is multiplied by sqrt(D).')

        def check(self) -> None:
            if self.dtype not in ('float32', 'bfloat16'):
                raise ValueError(f"dtype={self.dtype!r} is unknown here; write 'float32' or 'bfloat16'.")

    def __init__(self, params: Any, path: str = ''):
        super().__init__(params, path)
        p = self.params
        self.add_weight('w', [p.vocab_size, p.dim], keras.initializers.RandomNormal(stddev=p.dim ** -0.5))

    def fprop(self, theta: NestedMap, ctx: Any, ids: tf.Tensor) -> tf.Tensor:
        y = tf.cast(tf.gather(theta.w, ids), self.params.dtype)
        return y * math.sqrt(self.params.dim) if self.params.is_scaled else y

    def cost(self, ids: tf.TensorSpec) -> Cost:
        y = tf.TensorSpec([*static_shape(ids, self.path, 'ids'), self.params.dim], self.params.dtype)
        return Cost(float(num_elements(y) * self.params.is_scaled), self.num_weights, 0., y)


class PositionEmbedding(Layer):
    """x + a vector for each position; x [b, T, D].

    sinusoidal (Vaswani et al., 2017, section 3.5): sines of D/2 frequencies, geometric from 1 to 1/10000, then their cosines.
    learned: row t of w [max_length, D].
    """

    class Params(Layer.Params):
        dim: int = field(REQUIRED, 'D, the channels of the input.')
        kind: str = field('sinusoidal', "'sinusoidal' or 'learned'.")
        max_length: int = field(0, 'Of learned ones: the largest T.')

        def check(self) -> None:
            if self.kind not in ('sinusoidal', 'learned'):
                raise ValueError(f"kind={self.kind!r} is unknown; write 'sinusoidal' or 'learned'.")
            if self.kind == 'learned' and self.max_length < 1:
                raise ValueError(f'max_length={self.max_length}, but learned positions need one vector each; '
                                 'set max_length to the largest T.')
            if self.kind == 'sinusoidal' and self.dim % 2:
                raise ValueError(f'dim={self.dim} is odd, but half of the channels are sines, half cosines; make it even.')

    def __init__(self, params: Any, path: str = ''):
        super().__init__(params, path)
        p = self.params
        if p.kind == 'learned':
            self.add_weight('w', [p.max_length, p.dim], keras.initializers.RandomNormal(stddev=0.02))

    def fprop(self, theta: NestedMap, ctx: Any, x: tf.Tensor) -> tf.Tensor:
        self._check(x)
        t = dims(x)[1]
        positions = theta.w[:t] if self.params.kind == 'learned' else sinusoids(t, self.params.dim)
        return x + tf.cast(positions, x.dtype)

    def cost(self, x: tf.TensorSpec) -> Cost:
        self._check(x)
        t = static_shape(x, self.path, 'x')[1]
        made = 0. if self.params.kind == 'learned' else 1.5 * t * self.params.dim
        return Cost(num_elements(x) + made, self.num_weights, 0., as_spec(x))

    def _check(self, x: Any) -> None:
        p = self.params
        check_last_dim(x, p.dim, self.path)
        if p.kind == 'learned' and x.shape[1] is not None and x.shape[1] > p.max_length:
            raise ValueError(f'{self.path}: x has {x.shape[1]} positions, but max_length={p.max_length} were learned; '
                             'raise max_length or cut the sequences.')


def sinusoids(length: Any, dim: int) -> tf.Tensor:
    """[length, dim] float32: sin(t / 10000^(i / (dim/2 - 1))) for i < dim/2, then the cosines."""
    half = dim // 2
    periods = [10000. ** (i / max(1, half - 1)) for i in range(half)]
    angles = tf.cast(tf.range(length), tf.float32)[:, tf.newaxis] / tf.constant(periods)  # [T, D/2]
    return tf.concat([tf.sin(angles), tf.cos(angles)], 1)
