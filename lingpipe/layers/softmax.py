"""Logits: the product with the vocabulary, before a CrossEntropyLoss or a decoder."""
from __future__ import annotations

import math

import keras
import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.context import Context, DecodingContext
from lingpipe.layers.cost import Cost
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.projection import add_bias
from lingpipe.layers.shapes import as_rows, check_last_dim, dims, num_rows
from lingpipe.layers.shards import Shardable, glorot_uniform
from lingpipe.layers.static_shapes import static_shape


class Logits(Shardable):
    """x @ w + b, or x @ w^T + b, clipped if asked for; x [..., D] -> [..., V].

    A shard gives its own part of V. To share an embedding's table, set transpose_w=True and
    share={'w': 'path of the embedding/w'}.
    """

    gives_candidates = True

    can_start_late = True

    class Params(Shardable.Params):
        """Sizes of w, and what is done besides the product."""
        input_dim: int = field(REQUIRED, 'D, the channels of the input.', least=1)
        vocab_size: int = field(REQUIRED, 'V, the number of classes.', least=1)
        use_bias: bool = field(True, 'Whether b is added.')
        transpose_w: bool = field(False, 'Whether w is [V, D], as the table of an Embedding, '
                                         'instead of [D, V].')
        max_abs: float = field(0., 'Logits are clipped to [-max_abs, max_abs]; 0: they are not.',
                               least=0)

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        self.columns = self.part(p.vocab_size, 'vocab_size')
        if p.transpose_w:
            self.add_weight('w', [len(self.columns), p.input_dim],
                            keras.initializers.RandomNormal(stddev=p.input_dim ** -0.5))
        else:
            self.add_weight('w', [p.input_dim, len(self.columns)],
                            glorot_uniform(p.input_dim, p.vocab_size))
        if p.use_bias:
            self.add_weight('b', [len(self.columns)], 'zeros')

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """[..., D] -> [..., V] in the dtype of x.

        Raises:
          ValueError: the last dimension of x is not D.
        """
        p = self.params
        check_last_dim(x, p.input_dim, self.path)
        y = tf.matmul(as_rows(x), tf.cast(theta.w, x.dtype), transpose_b=p.transpose_w)
        if p.use_bias:
            y = add_bias(y, theta.b)
        if p.max_abs:
            y = tf.clip_by_value(y, -p.max_abs, p.max_abs)
        return tf.reshape(y, [*dims(x)[:-1], len(self.columns)])

    def decode(self, theta: NestedMap, ctx: DecodingContext, kept: NestedMap, past: NestedMap,
               x: tf.Tensor, partial: NestedMap | None = None) -> tuple[NestedMap, NestedMap]:
        """Returns the best next ids of hypotheses x [n, k, D], those of the largest logits first.

        Args:
          theta, ctx, kept, past, x: those of Layer.decode.
          partial: the candidates of the shards before.

        Returns:
          The candidates, and the past. The candidates are values and ids [n, k, m], where m is
          ctx.num_candidates, or V if that is less, and log_sum [n, k], which is log(sum(exp(l))) of
          all logits l.
        """
        logits = tf.cast(Logits.fprop(self, theta, ctx, x), tf.float32)  # [n, k, V]
        values, ids = tf.math.top_k(logits, min(ctx.num_candidates, len(self.columns)))
        log_sum = tf.reduce_logsumexp(logits, -1)
        ids = ids + self.columns.start
        if partial is not None:
            # Of equal values, that of the earlier shard comes first, and top_k keeps it there.
            values = tf.concat([partial['values'], values], -1)
            ids = tf.concat([partial['ids'], ids], -1)
            values, places = tf.math.top_k(values, min(ctx.num_candidates, self.columns.stop))
            ids = tf.gather(ids, places, batch_dims=2)
            log_sum = add_logs(partial['log_sum'], log_sum)
        return NestedMap(log_sum=log_sum, values=values, ids=ids), past

    def cost(self, x: tf.TensorSpec) -> Cost:
        """rows * V * (2 D + 1), and 2 a logit for clipping."""
        p = self.params
        check_last_dim(x, p.input_dim, self.path)
        shape = [*static_shape(x, self.path, 'x')[:-1], len(self.columns)]
        flops_per_logit = 2 * p.input_dim + p.use_bias + (2 if p.max_abs else 0)
        flops = float(num_rows(x, self.path)) * len(self.columns) * flops_per_logit
        return Cost(flops, self.num_weights, tf.TensorSpec(shape, x.dtype))


def add_logs(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """log(exp(a) + exp(b)) of tensors of one shape.

    It is exact however far apart they are, and if one is -inf. If both are, the gradient is 0.
    """
    is_none = (a == -math.inf) & (b == -math.inf)
    logs = tf.where(is_none[..., tf.newaxis], 0., tf.stack([a, b], -1))
    return tf.where(is_none, -math.inf, tf.reduce_logsumexp(logs, -1))
