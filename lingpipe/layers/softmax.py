"""Logits: the product with the vocabulary, before a CrossEntropyLoss or a decoder."""
from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from lingpipe.cost import Cost
from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layer import Layer
from lingpipe.layers.shapes import as_rows, check_last_dim, dims, num_rows
from lingpipe.nested import NestedMap
from lingpipe.tracing import num_elements, static_shape


class Logits(Layer):
    """x @ w + b, or x @ w^T + b, clipped if asked; x [..., D] -> [..., V].

    To share an embedding's table: transpose_w=True, share={'w': 'path of the embedding/w'}.
    """

    class Params(Layer.Params):
        input_dim: int = field(REQUIRED, 'D, the channels of the input.')
        vocab_size: int = field(REQUIRED, 'V, the number of classes.')
        use_bias: bool = field(True, 'Whether b is added.')
        transpose_w: bool = field(False, 'Whether w is [V, D], as the table of an Embedding, instead of [D, V].')
        max_abs: float = field(0., 'Logits are clipped to [-max_abs, max_abs]; 0: they are not.')

    def __init__(self, params: Any, path: str = ''):
        super().__init__(params, path)
        p = self.params
        if p.transpose_w:
            self.add_weight('w', [p.vocab_size, p.input_dim], keras.initializers.RandomNormal(stddev=p.input_dim ** -0.5))
        else:
            self.add_weight('w', [p.input_dim, p.vocab_size], 'glorot_uniform')
        if p.use_bias:
            self.add_weight('b', [p.vocab_size], 'zeros')

    def fprop(self, theta: NestedMap, ctx: Any, x: tf.Tensor) -> tf.Tensor:
        p = self.params
        check_last_dim(x, p.input_dim, self.path)
        y = tf.matmul(as_rows(x), tf.cast(theta.w, x.dtype), transpose_b=p.transpose_w)
        if p.use_bias:
            y = tf.nn.bias_add(y, tf.cast(theta.b, x.dtype))
        if p.max_abs:
            y = tf.clip_by_value(y, -p.max_abs, p.max_abs)
        return tf.reshape(y, [*dims(x)[:-1], p.vocab_size])

    def cost(self, x: tf.TensorSpec) -> Cost:
        p = self.params
        check_last_dim(x, p.input_dim, self.path)
        y = tf.TensorSpec([*static_shape(x, self.path, 'x')[:-1], p.vocab_size], x.dtype)
        per_logit = 2 * p.input_dim + p.use_bias + (2 if p.max_abs else 0)
        kept = num_elements(y) * y.dtype.size * (2 if p.max_abs else 0)  # what the two halves of the clipping compare
        return Cost(float(num_rows(x, self.path)) * p.vocab_size * per_logit, self.num_weights, kept, y)
