"""MultiHeadAttention (Vaswani et al., 2017, arXiv:1706.03762, section 3.2.2).

Shapes: b micro-batch, T time, S time of the memory (T for self-attention), D model, H heads, h
channels of a head.

The projections are plain matrix products of [b*T, D], and a transposition makes heads of them. An
einsum over the heads is 10 % slower (forward and backward at b=4, T=64, D=256, H=4 on one thread:
9.2 ms against 8.4 ms). One product for q, k and v, which has to concatenate the weights, is no
faster, nor is a division after the product with v.
"""
from __future__ import annotations

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.context import Context, DecodingContext
from lingpipe.layers.cost import Cost
from lingpipe.layers.dropout import drop, drop_flops
from lingpipe.layers.low_rank import Adaptable
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.projection import projection_flops
from lingpipe.layers.shapes import check_last_dim, dims
from lingpipe.layers.static_shapes import as_spec, num_elements, static_shape


class MultiHeadAttention(Adaptable):
    """softmax(q k^T / sqrt(h)) v for each head; x [b, T, D] -> [b, T, D].

    x attends to memory [b, S, D_memory], or to itself. Column c of wq, wk and wv belongs to head
    c // h. Where mask [b, S] is 0, the memory may hold anything, NaN too: it reaches neither the
    output nor a gradient. (In self-attention, the outputs at these positions are finite and mean
    nothing.)
    """

    is_traced_once = True
    mask_rule = 'keeps'
    projections = ('wq', 'wk', 'wv', 'wo')

    class Params(Adaptable.Params):
        """Sizes, causality, dropout and initializer."""
        input_dim: int = field(REQUIRED, 'D, the channels of the input and of the output.', least=1)
        num_heads: int = field(REQUIRED, 'H, the number of heads.', least=1)
        head_dim: int = field(0, 'h, the channels of a head; 0: input_dim / num_heads.', least=0)
        memory_dim: int = field(0, 'Channels of the memory; 0: input_dim.', least=0)
        is_causal: bool = field(False, 'Whether a position sees itself and earlier ones only '
                                       '(self-attention).')
        dropout_rate: float = field(0., 'Probability that a weight of the attention becomes zero '
                                        'in training.', least=0, below=1)
        use_bias: bool = field(True, 'Whether the four projections add a bias.')
        kernel_initializer: str = field('glorot_uniform', 'Name of the Keras initializer of the '
                                                          'projections.')

        def check(self) -> None:
            """Raises ValueError if the number of heads does not divide the channels."""
            super().check()
            if not self.head_dim and self.input_dim % self.num_heads:
                raise ValueError(f'num_heads={self.num_heads} does not divide '
                                 f'input_dim={self.input_dim}; choose one that does, or set '
                                 'head_dim.')

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        self.head_dim = p.head_dim or p.input_dim // p.num_heads
        self.memory_dim = p.memory_dim or p.input_dim
        self.width = p.num_heads * self.head_dim
        for name, rows, columns in [('q', p.input_dim, self.width),
                                    ('k', self.memory_dim, self.width),
                                    ('v', self.memory_dim, self.width),
                                    ('o', self.width, p.input_dim)]:
            self.add_weight(f'w{name}', [rows, columns], p.kernel_initializer)
            if p.use_bias:
                self.add_weight(f'b{name}', [columns], 'zeros')

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor, memory: tf.Tensor | None = None,
              mask: tf.Tensor | None = None) -> tf.Tensor:
        """[b, T, D] -> [b, T, D] in the dtype of x.

        Args:
          theta, ctx: the weights and the context.
          x: [b, T, D].
          memory: [b, S, D_memory]; by default x.
          mask: [b, S] of bool, int or float, 0 where the memory is padding.

        Raises:
          ValueError: a last dimension is not as Params say, or is_causal with a memory.
        """
        p = self.params
        self._check(x, memory)
        b, t = dims(x)[:2]
        if mask is not None:
            mask = tf.cast(mask, tf.bool)
            attended = tf.where(mask[:, :, tf.newaxis], x if memory is None else memory, 0)
            x, memory = (attended, None) if memory is None else (x, attended)
        source = x if memory is None else memory

        q = self.project(theta, ctx, x, 'wq', 'bq') * self.head_dim ** -0.5
        q = self._heads(q, b, t)  # [b, H, T, h]
        s = dims(source)[1]
        k = self._heads(self.project(theta, ctx, source, 'wk', 'bk'), b, s)  # [b, H, S, h]
        v = self._heads(self.project(theta, ctx, source, 'wv', 'bv'), b, s)  # [b, H, S, h]

        scores = tf.cast(tf.matmul(q, k, transpose_b=True), tf.float32)  # [b, H, T, S]
        is_seen = self._is_seen(mask, t)
        if is_seen is not None:
            scores = _masked(scores, is_seen)
        weights = tf.cast(tf.nn.softmax(scores), x.dtype)
        if ctx.training:
            weights = drop(weights, p.dropout_rate, ctx.seed(self.path))

        y = tf.transpose(tf.matmul(weights, v), [0, 2, 1, 3])  # [b, T, H, h]
        y = self.project(theta, ctx, tf.reshape(y, [-1, self.width]), 'wo', 'bo')
        return tf.reshape(y, [b, t, p.input_dim])

    def cost(self, x: tf.TensorSpec, memory: tf.TensorSpec | None = None,
             mask: tf.TensorSpec | None = None) -> Cost:
        """Four projections, adapters, two products of the heads and a softmax."""
        p = self.params
        self._check(x, memory)
        b, t, _ = static_shape(x, self.path, 'x')
        s = t if memory is None else static_shape(memory, self.path, 'memory')[1]
        scores = tf.TensorSpec([b, p.num_heads, t, s], x.dtype)
        flops = (projection_flops(b * t, p.input_dim, self.width, p.use_bias)
                 + b * t * self.width  # q, scaled.
                 + 2 * projection_flops(b * s, self.memory_dim, self.width, p.use_bias)
                 + 2 * 2 * num_elements(scores) * self.head_dim  # The scores, the sum of v.
                 + 5 * num_elements(scores)  # The softmax.
                 + projection_flops(b * t, self.width, p.input_dim, p.use_bias)
                 + drop_flops(scores, p.dropout_rate)
                 + self.adapter_flops(b * t, x.dtype, ('wq', 'wo'))
                 + self.adapter_flops(b * s, x.dtype, ('wk', 'wv')))

        if p.is_causal or mask is not None:
            # A choice for each score, and what stands in place of a masked one.
            rows_of_mask = (1 if mask is None else b) * (t if p.is_causal else 1)
            flops += num_elements(scores) + rows_of_mask
        if mask is not None:
            flops += b * s * self.memory_dim
        return Cost(flops, self.num_weights, as_spec(x))

    # Decoding: x [n, k, D], one position of k hypotheses of each of n sentences.

    def prepare(self, theta: NestedMap, ctx: Context, memory: tf.Tensor | None = None,
                mask: tf.Tensor | None = None) -> NestedMap:
        """Keys and values of the memory, k and v [n, H, S, h], and mask [n, S] if there is one.

        Self-attention needs nothing of the kind.
        """
        if memory is None:
            return NestedMap()
        self._check(tf.TensorSpec([None, None, self.params.input_dim]), memory)
        n, s = dims(memory)[:2]
        kept_mask = {}
        if mask is not None:
            mask = tf.cast(mask, tf.bool)
            memory = tf.where(mask[:, :, tf.newaxis], memory, 0)
            kept_mask = {'mask': mask}
        return NestedMap(k=self._heads(self.project(theta, ctx, memory, 'wk', 'bk'), n, s),
                         v=self._heads(self.project(theta, ctx, memory, 'wv', 'bv'), n, s),
                         **kept_mask)

    def initial_past(self, num_sentences: int | tf.Tensor, ctx: DecodingContext,
                     **specs: tf.TensorSpec) -> NestedMap:
        """Keys and values of no position yet, k and v [n, k, H, 0, h].

        Attention to a memory does not use them.
        """
        shape = [num_sentences, ctx.num_hypotheses, self.params.num_heads, 0, self.head_dim]
        return NestedMap(k=tf.zeros(shape, specs['x'].dtype), v=tf.zeros(shape, specs['x'].dtype))

    def decode(self, theta: NestedMap, ctx: DecodingContext, kept: NestedMap, past: NestedMap,
               x: tf.Tensor) -> tuple[tf.Tensor, NestedMap]:
        """[n, k, D] -> [n, k, D]: attention to the memory, or to earlier positions and itself.

        The hypotheses of a sentence stand where time T stands in fprop.

        Raises:
          ValueError: self-attention is not causal, so that later positions would change earlier
            ones.
        """
        p = self.params
        check_last_dim(x, p.input_dim, self.path)
        n, k = dims(x)[:2]
        q = self.project(theta, ctx, x, 'wq', 'bq') * self.head_dim ** -0.5  # [n*k, H*h]
        if kept:
            y = self._attended_memory(q, kept, n, k, x.dtype)
        elif p.is_causal:
            y, past = self._attended_past(theta, ctx, q, past, x)
        else:
            raise ValueError(f'{self.path}: is_causal=False, but self-attention is decoded '
                             'position by position only if no position sees a later one; set '
                             'is_causal=True, or give it a memory that does not depend on the '
                             'target.')
        y = self.project(theta, ctx, tf.reshape(y, [-1, self.width]), 'wo', 'bo')
        return tf.reshape(y, [n, k, p.input_dim]), past

    def _attended_memory(self, q: tf.Tensor, kept: NestedMap, n: int | tf.Tensor,
                         k: int | tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """What hypotheses find in the memory; q [n*k, H*h] -> [n, k, H, h]."""
        q = self._heads(q, n, k)  # [n, H, k, h]
        scores = tf.cast(tf.matmul(q, kept.k, transpose_b=True), tf.float32)  # [n, H, k, S]
        if 'mask' in kept:
            scores = _masked(scores, kept.mask[:, tf.newaxis, tf.newaxis, :])
        weights = tf.cast(tf.nn.softmax(scores), dtype)
        return tf.transpose(tf.matmul(weights, kept.v), [0, 2, 1, 3])

    def _attended_past(self, theta: NestedMap, ctx: Context, q: tf.Tensor, past: NestedMap,
                       x: tf.Tensor) -> tuple[tf.Tensor, NestedMap]:
        """What hypotheses find in earlier positions and this one, and the past with this one.

        q [n*k, H*h] -> [n, k, H, 1, h]
        """
        n, k = dims(x)[:2]
        one_position = [n, k, self.params.num_heads, 1, self.head_dim]
        new = NestedMap(k=self.project(theta, ctx, x, 'wk', 'bk'),
                        v=self.project(theta, ctx, x, 'wv', 'bv'))
        past = NestedMap({name: tf.concat([past[name], tf.reshape(new[name], one_position)], 3)
                          for name in new})  # [n, k, H, t, h]
        q = tf.reshape(q, one_position)
        scores = tf.cast(tf.matmul(q, past.k, transpose_b=True), tf.float32)  # [n, k, H, 1, t]
        weights = tf.cast(tf.nn.softmax(scores), x.dtype)
        return tf.matmul(weights, past.v), past

    # Parts.

    def _check(self, x: tf.Tensor | tf.TensorSpec,
               memory: tf.Tensor | tf.TensorSpec | None) -> None:
        """Raises ValueError for inputs that do not agree with Params."""
        check_last_dim(x, self.params.input_dim, self.path)
        if memory is not None:
            check_last_dim(memory, self.memory_dim, self.path, 'memory')
            if self.params.is_causal:
                raise ValueError(f'{self.path}: is_causal is for self-attention, but a memory is '
                                 'given; set is_causal=False.')

    def _heads(self, x: tf.Tensor, b: int | tf.Tensor, t: int | tf.Tensor) -> tf.Tensor:
        """[b*T, H*h] -> [b, H, T, h]."""
        x = tf.reshape(x, [b, t, self.params.num_heads, self.head_dim])
        return tf.transpose(x, [0, 2, 1, 3])

    def _is_seen(self, mask: tf.Tensor | None, t: int | tf.Tensor) -> tf.Tensor | None:
        """Bools that say which position sees which, broadcasting to [b, H, T, S]; None: all."""
        is_seen = None if mask is None else mask[:, tf.newaxis, tf.newaxis, :]  # [b, 1, 1, S]
        if self.params.is_causal:
            is_earlier = tf.range(t)[:, tf.newaxis] >= tf.range(t)  # [T, S]
            is_seen = is_earlier if is_seen is None else tf.logical_and(is_seen, is_earlier)
        return is_seen


def _masked(scores: tf.Tensor, is_seen: tf.Tensor) -> tf.Tensor:
    """The scores [..., S], lowest where `is_seen`, which broadcasts to them, is False.

    No score is so low that a masked one would matter. The scores of a row with everything masked
    are 0 instead, so that they do not depend on what is masked. With -inf the results are the same,
    but tf2onnx makes products of tf.where, and -inf times 0 is NaN.
    """
    sees_any = tf.reduce_any(is_seen, -1, keepdims=True)
    return tf.where(is_seen, scores, tf.where(sees_any, tf.float32.min, 0.))
