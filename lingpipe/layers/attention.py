"""MultiHeadAttention (Vaswani et al., 2017, arXiv 1706.03762, section 3.2.2), to the input itself or to a memory.

Shapes: b micro-batch, T time, S time of the memory (T for self-attention), D model, H heads, h channels of a head.

The projections are plain matrix products of [b*T, D], the heads a transposition away. Einsum over the heads is 10 % slower
(forward and backward at b=4, T=64, D=256, H=4 on one thread: 9.2 ms against 8.4 ms); one product for q, k and v, which has
to concatenate the weights, and a division after the product with v are no faster.
"""
from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.layers.dense import project, projection_flops
from lingpipe.layers.dropout import drop, drop_flops
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.shapes import check_last_dim, dims
from lingpipe.layers.static_shapes import as_spec, num_elements, static_shape


class MultiHeadAttention(Layer):
    """softmax(q k^T / sqrt(h)) v for each head, of x [b, T, D] to memory [b, S, D_memory] or to x itself -> [b, T, D].

    Column c of wq, wk and wv belongs to head c // h. Where mask [b, S] is 0 the memory may hold anything, NaN too: it reaches
    neither the output nor a gradient. (In self-attention these positions' own outputs are finite and mean nothing.)
    """

    mask_rule = 'keeps'

    class Params(Layer.Params):
        """Sizes, causality, dropout and initializer."""
        input_dim: int = field(REQUIRED, 'D, the channels of the input and of the output.', least=1)
        num_heads: int = field(REQUIRED, 'H.', least=1)
        head_dim: int = field(0, 'h, the channels of a head; 0: input_dim / num_heads.', least=0)
        memory_dim: int = field(0, 'Channels of the memory; 0: input_dim.', least=0)
        is_causal: bool = field(False, 'Whether a position sees itself and earlier ones only (self-attention).')
        dropout_rate: float = field(0., 'Probability that a weight of the attention becomes zero in training.',
                                    least=0, below=1)
        use_bias: bool = field(True, 'Whether the four projections add a bias.')
        kernel_initializer: str = field('glorot_uniform', 'Name of the Keras initializer of the projections.')

        def check(self) -> None:
            """Raises ValueError for heads that do not divide the channels."""
            if not self.head_dim and self.input_dim % self.num_heads:
                raise ValueError(f'num_heads={self.num_heads} does not divide input_dim={self.input_dim}; '
                                 'choose one that does, or set head_dim.')

    def __init__(self, params: Any, path: str = ''):
        super().__init__(params, path)
        p = self.params
        self.head_dim = p.head_dim or p.input_dim // p.num_heads
        self.memory_dim = p.memory_dim or p.input_dim
        width = p.num_heads * self.head_dim
        for name, rows, columns in [('q', p.input_dim, width), ('k', self.memory_dim, width), ('v', self.memory_dim, width),
                                    ('o', width, p.input_dim)]:
            self.add_weight(f'w{name}', [rows, columns], p.kernel_initializer)
            if p.use_bias:
                self.add_weight(f'b{name}', [columns], 'zeros')

    def fprop(self, theta: NestedMap, ctx: Any, x: tf.Tensor, memory: tf.Tensor | None = None,
              mask: tf.Tensor | None = None) -> tf.Tensor:
        """mask: [b, S] of bool, int or float, 0 where the memory is padding."""
        p = self.params
        self._check(x, memory)
        b, t = dims(x)[:2]
        if mask is not None:
            mask = tf.cast(mask, tf.bool)
            attended = tf.where(mask[:, :, tf.newaxis], x if memory is None else memory, 0)
            x, memory = (attended, None) if memory is None else (x, attended)
        source = x if memory is None else memory
        q = self._heads(project(x, theta.wq, theta.get('bq')) * self.head_dim ** -0.5, b, t)  # [b, H, T, h]
        k = self._heads(project(source, theta.wk, theta.get('bk')), b, dims(source)[1])  # [b, H, S, h]
        v = self._heads(project(source, theta.wv, theta.get('bv')), b, dims(source)[1])
        scores = tf.cast(tf.matmul(q, k, transpose_b=True), tf.float32)  # [b, H, T, S]
        keep = self._keep(mask, t)
        if keep is not None:
            scores = _masked(scores, keep)
        weights = tf.cast(tf.nn.softmax(scores), x.dtype)
        if ctx.training:
            weights = drop(weights, p.dropout_rate, ctx.seed(self.path))
        y = tf.reshape(tf.transpose(tf.matmul(weights, v), [0, 2, 1, 3]), [-1, p.num_heads * self.head_dim])
        return tf.reshape(project(y, theta.wo, theta.get('bo')), [b, t, p.input_dim])

    # Decoding: x [n, k, D], one position of k hypotheses of each of n sentences.

    def prepare(self, theta: NestedMap, ctx: Any, memory: tf.Tensor | None = None, mask: tf.Tensor | None = None) -> NestedMap:
        """Keys and values of the memory, k and v [n, H, S, h], and mask [n, S] if there is one; of self-attention nothing."""
        if memory is None:
            return NestedMap()
        self._check(tf.TensorSpec([None, None, self.params.input_dim]), memory)
        n, s = dims(memory)[:2]
        if mask is not None:
            mask = tf.cast(mask, tf.bool)
            memory = tf.where(mask[:, :, tf.newaxis], memory, 0)
        return NestedMap(k=self._heads(project(memory, theta.wk, theta.get('bk')), n, s),
                         v=self._heads(project(memory, theta.wv, theta.get('bv')), n, s), **({} if mask is None else {'mask': mask}))

    def initial_past(self, num_sentences: Any, ctx: Any, **specs: Any) -> NestedMap:
        """Keys and values of no position: k and v [n, k, H, 0, h]; decode with a memory needs none."""
        shape = [num_sentences, ctx.num_hypotheses, self.params.num_heads, 0, self.head_dim]
        return NestedMap(k=tf.zeros(shape, specs['x'].dtype), v=tf.zeros(shape, specs['x'].dtype))

    def decode(self, theta: NestedMap, ctx: Any, kept: NestedMap, past: NestedMap, x: tf.Tensor) -> tuple[tf.Tensor, NestedMap]:
        """To the memory, where the hypotheses are its times T, or to the positions before and itself; [n, k, D] -> [n, k, D].

        Raises ValueError for self-attention that is not causal: later positions would change earlier ones.
        """
        p = self.params
        check_last_dim(x, p.input_dim, self.path)
        n, k = dims(x)[:2]
        q = project(x, theta.wq, theta.get('bq')) * self.head_dim ** -0.5  # [n*k, H*h]
        if kept:
            scores = tf.cast(tf.matmul(self._heads(q, n, k), kept.k, transpose_b=True), tf.float32)  # [n, H, k, S]
            if 'mask' in kept:
                scores = _masked(scores, kept.mask[:, tf.newaxis, tf.newaxis, :])
            y = tf.transpose(tf.matmul(tf.cast(tf.nn.softmax(scores), x.dtype), kept.v), [0, 2, 1, 3])
        elif not p.is_causal:
            raise ValueError(f'{self.path}: is_causal=False, but self-attention is decoded position by position only if no position sees a '
                             'later one; set is_causal=True, or give it a memory that does not depend on the target.')
        else:
            one = [n, k, p.num_heads, 1, self.head_dim]
            new = NestedMap(k=project(x, theta.wk, theta.get('bk')), v=project(x, theta.wv, theta.get('bv')))
            past = NestedMap({name: tf.concat([past[name], tf.reshape(new[name], one)], 3) for name in new})  # [n, k, H, t, h]
            scores = tf.cast(tf.matmul(tf.reshape(q, one), past.k, transpose_b=True), tf.float32)  # [n, k, H, 1, t]
            y = tf.matmul(tf.cast(tf.nn.softmax(scores), x.dtype), past.v)
        y = tf.reshape(y, [-1, p.num_heads * self.head_dim])
        return tf.reshape(project(y, theta.wo, theta.get('bo')), [n, k, p.input_dim]), past

    def cost(self, x: tf.TensorSpec, memory: tf.TensorSpec | None = None, mask: tf.TensorSpec | None = None) -> Cost:
        """Four projections, two products of the heads and a softmax."""
        p = self.params
        self._check(x, memory)
        b, t, _ = static_shape(x, self.path, 'x')
        s = t if memory is None else static_shape(memory, self.path, 'memory')[1]
        width = p.num_heads * self.head_dim
        scores = tf.TensorSpec([b, p.num_heads, t, s], x.dtype)
        flops = (projection_flops(b * t, p.input_dim, width, p.use_bias) + b * t * width  # q, scaled
                 + 2 * projection_flops(b * s, self.memory_dim, width, p.use_bias)
                 + 2 * 2 * num_elements(scores) * self.head_dim  # scores, weighted sum of v
                 + 5 * num_elements(scores)  # softmax
                 + projection_flops(b * t, width, p.input_dim, p.use_bias)
                 + drop_flops(scores, p.dropout_rate))
        if p.is_causal or mask is not None:
            flops += num_elements(scores) + (1 if mask is None else b) * (t if p.is_causal else 1)  # and what stands in place of a score
        if mask is not None:
            flops += b * s * self.memory_dim
        return Cost(flops, self.num_weights, as_spec(x))

    def _check(self, x: Any, memory: Any) -> None:
        check_last_dim(x, self.params.input_dim, self.path)
        if memory is not None:
            check_last_dim(memory, self.memory_dim, self.path, 'memory')
            if self.params.is_causal:
                raise ValueError(f'{self.path}: is_causal is for self-attention, but a memory is given; set is_causal=False.')

    def _heads(self, x: tf.Tensor, b: Any, t: Any) -> tf.Tensor:
        """[b*T, H*h] -> [b, H, T, h]."""
        return tf.transpose(tf.reshape(x, [b, t, self.params.num_heads, self.head_dim]), [0, 2, 1, 3])

    def _keep(self, mask: tf.Tensor | None, t: Any) -> tf.Tensor | None:
        """Bools that broadcast to [b, H, T, S]: which position sees which; None: all see all."""
        keep = None if mask is None else mask[:, tf.newaxis, tf.newaxis, :]  # [b, 1, 1, S]
        if self.params.is_causal:
            earlier = tf.range(t)[:, tf.newaxis] >= tf.range(t)  # [T, S]
            keep = earlier if keep is None else tf.logical_and(keep, earlier)
        return keep


def _masked(scores: tf.Tensor, keep: tf.Tensor) -> tf.Tensor:
    """The scores [..., S] with -inf where `keep`, which broadcasts to them, is False: no score is so low that a masked one matters.

    Of a row with everything masked the scores are 0, since a softmax of -inf alone is NaN: it is finite and moves nothing.
    """
    sees_any = tf.reduce_any(keep, -1, keepdims=True)
    return tf.where(keep, scores, tf.where(sees_any, -math.inf, 0.))
