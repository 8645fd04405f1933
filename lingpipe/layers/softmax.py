"""Logits: the product with the vocabulary, before a CrossEntropyLoss or a decoder."""
from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.cost import Cost
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.shapes import as_rows, check_last_dim, dims, num_rows
from lingpipe.layers.shards import Shardable, glorot_uniform
from lingpipe.layers.static_shapes import static_shape


class Logits(Shardable):
    """x @ w + b, or x @ w^T + b, clipped if asked; x [..., D] -> [..., V], of a shard its own part of V.

    To share an embedding's table: transpose_w=True, share={'w': 'path of the embedding/w'}.
    """

    gives_candidates = True

    class Params(Shardable.Params):
        """Sizes of w, and what is done besides the product."""
        input_dim: int = field(REQUIRED, 'D, the channels of the input.', least=1)
        vocab_size: int = field(REQUIRED, 'V, the number of classes.', least=1)
        use_bias: bool = field(True, 'Whether b is added.')
        transpose_w: bool = field(False, 'Whether w is [V, D], as the table of an Embedding, instead of [D, V].')
        max_abs: float = field(0., 'Logits are clipped to [-max_abs, max_abs]; 0: they are not.',
                               least=0)

    def __init__(self, params: Any, path: str = ''):
        super().__init__(params, path)
        p = self.params
        self.columns = self.part(p.vocab_size, 'vocab_size')
        if p.transpose_w:
            self.add_weight('w', [len(self.columns), p.input_dim], keras.initializers.RandomNormal(stddev=p.input_dim ** -0.5))
        else:
            self.add_weight('w', [p.input_dim, len(self.columns)], glorot_uniform(p.input_dim, p.vocab_size))
        if p.use_bias:
            self.add_weight('b', [len(self.columns)], 'zeros')

    def fprop(self, theta: NestedMap, ctx: Any, x: tf.Tensor) -> tf.Tensor:
        """[..., D] -> [..., V] in the dtype of x. Raises ValueError unless the last dimension of x is D."""
        p = self.params
        check_last_dim(x, p.input_dim, self.path)
        y = tf.matmul(as_rows(x), tf.cast(theta.w, x.dtype), transpose_b=p.transpose_w)
        if p.use_bias:
            y = tf.nn.bias_add(y, tf.cast(theta.b, x.dtype))
        if p.max_abs:
            y = tf.clip_by_value(y, -p.max_abs, p.max_abs)
        return tf.reshape(y, [*dims(x)[:-1], len(self.columns)])

    def decode(self, theta: NestedMap, ctx: Any, kept: NestedMap, past: NestedMap, x: tf.Tensor,
               partial: NestedMap | None = None) -> tuple[NestedMap, NestedMap]:
        """The best next ids of hypotheses: x [n, k, D] -> log_sum [n, k], values and ids [n, k, m], the largest logits first.

        log_sum is log(sum(exp(l))) of all logits l; m is ctx.num_candidates, or V if that is less. partial: that of the shards before.
        """
        logits = tf.cast(Logits.fprop(self, theta, ctx, x), tf.float32)  # [n, k, V]
        values, ids = tf.math.top_k(logits, min(ctx.num_candidates, len(self.columns)))
        made = NestedMap(log_sum=tf.reduce_logsumexp(logits, -1), values=values, ids=ids + self.columns.start)
        if partial is not None:
            values, ids = (tf.concat([partial[name], made[name]], -1) for name in ('values', 'ids'))  # of equals the earlier shard's stay
            values, place = tf.math.top_k(values, min(ctx.num_candidates, self.columns.stop))
            made = NestedMap(log_sum=add_logs(partial['log_sum'], made.log_sum), values=values, ids=tf.gather(ids, place, batch_dims=2))
        return made, past

    def cost(self, x: tf.TensorSpec) -> Cost:
        """rows * V * (2 D + 1), and 2 a logit for clipping."""
        p = self.params
        check_last_dim(x, p.input_dim, self.path)
        y = tf.TensorSpec([*static_shape(x, self.path, 'x')[:-1], len(self.columns)], x.dtype)
        per_logit = 2 * p.input_dim + p.use_bias + (2 if p.max_abs else 0)
        return Cost(float(num_rows(x, self.path)) * len(self.columns) * per_logit, self.num_weights, y)


def add_logs(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """log(exp(a) + exp(b)) of tensors of one shape, exact however far apart they are, and if one is -inf."""
    return tf.reduce_logsumexp(tf.stack([a, b], -1), -1)
