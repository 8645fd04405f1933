"""GroupedQueryAttention: the causal self-attention of language models.

Several heads of queries share one head of keys and values (Ainslie et al., 2023, GQA,
arXiv:2305.13245), which makes the keys and values that generation keeps so much smaller. Positions
are rotary (rotary.py), and the memory is linear in the length (blockwise_attention.py). With a
window (Beltagy et al., 2020, Longformer, arXiv:2004.05150; Jiang et al., 2023, Mistral 7B,
arXiv:2310.06825) the work is linear in the length, too, and generation keeps no more than the
window.

Shapes: b micro-batch, T time, D model, H heads, G groups (heads of keys and values), r = H / G, h
channels of a head.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.blockwise_attention import attention_flops, causal_attention
from lingpipe.layers.context import Context, DecodingContext
from lingpipe.layers.cost import Cost
from lingpipe.layers.low_rank import Adaptable
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.projection import projection_flops
from lingpipe.layers.rms_norm import rms_norm, rms_norm_flops
from lingpipe.layers.rotary import RotaryScaling, rotate, rotation_flops, rotations
from lingpipe.layers.shapes import check_last_dim, dims
from lingpipe.layers.static_shapes import as_spec, static_shape


class GroupedQueryAttention(Adaptable):
    """Causal self-attention, with rotary positions or none; x [b, T, D] -> [b, T, D].

    Head c // h of the columns of wq uses head c // (r h) of the columns of wk and wv. If the
    network has the values `documents` and `positions`, both int [b, T], a position sees only
    positions of its own document, and stands where `positions` says; otherwise all are one document
    and stand where they are. (Scores depend on distances alone, so positions that count on over
    several documents are as good.)
    """

    is_traced_once = True
    optional_reads = ('positions', 'documents')
    can_start_late = True
    projections = ('wq', 'wk', 'wv', 'wo')

    class Params(Adaptable.Params):
        """Sizes, positions, blocks and initializer."""
        input_dim: int = field(REQUIRED, 'D, the channels of the input and of the output.', least=1)
        num_heads: int = field(REQUIRED, 'H, the number of heads of queries.', least=1)
        num_groups: int = field(0, 'G, the number of heads of keys and values; 0: num_heads; 1: '
                                   'multi-query attention.', least=0)
        head_dim: int = field(0, 'h, the channels of a head; 0: input_dim / num_heads.', least=0)
        is_rotary: bool = field(True, 'Whether queries and keys are rotated; a network without has '
                                      'other positions, as LearnedPositions.')
        rotary_base: float = field(10_000., 'The slowest channels turn by nearly 1 / rotary_base a '
                                            'position; larger for longer texts.', least=1)
        rotary_scaling: RotaryScaling = field(RotaryScaling(), 'Slower rotations for longer texts.')
        biases: Literal['none', 'qkv', 'all'] = field(
            'none', 'Which projections add a bias: none, those of queries, keys and values, or '
                    'that of the output, too.')
        window: int = field(0, 'w, the positions that a position sees at most: itself and the '
                               'w - 1 before it; 0: itself and all before it.', least=0)
        normalises_heads: bool = field(False, 'Whether each head of queries and of keys is '
                                              'normalised (RMSNorm) before it is rotated.')
        normalises_projections: bool = field(
            False, 'Whether the queries of all heads together are normalised before they are '
                   'rotated, and so the keys.')
        epsilon: float = field(1e-6, 'Added to the mean of squares of what is normalised.', least=0)
        is_zero_centered: bool = field(False, 'Whether what is normalised is scaled by 1 plus the '
                                              'weight; see RMSNorm.')
        score_dim: int = field(0, 'Scores are divided by its square root; 0: head_dim.', least=0)
        block_size: int = field(256, 'Positions of a block of queries or keys; the scores of one '
                                     'block exist at a time.', least=1)
        kernel_initializer: str = field('glorot_uniform', 'Name of the Keras initializer of the '
                                                          'projections.')

        def check(self) -> None:
            """Raises ValueError for sizes that do not divide each other."""
            super().check()
            if not self.head_dim and self.input_dim % self.num_heads:
                raise ValueError(f'num_heads={self.num_heads} does not divide '
                                 f'input_dim={self.input_dim}; choose one that does, or set '
                                 'head_dim.')
            if self.num_heads % (self.num_groups or self.num_heads):
                raise ValueError(f'num_groups={self.num_groups} does not divide '
                                 f'num_heads={self.num_heads}, but every group has as many heads; '
                                 'choose one that does.')
            if self.normalises_heads and self.normalises_projections:
                raise ValueError('normalises_heads and normalises_projections are both True, but '
                                 'queries and keys are normalised once; choose one.')
            head_dim = self.head_dim or self.input_dim // self.num_heads
            if self.is_rotary and head_dim % 2:
                raise ValueError(f'a head has {head_dim} channels, but rotary positions turn '
                                 'pairs of them; make head_dim even.')

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        self.head_dim = p.head_dim or p.input_dim // p.num_heads
        self.score_dim = p.score_dim or self.head_dim
        self.num_groups = p.num_groups or p.num_heads
        self.width = p.num_heads * self.head_dim
        self.group_width = self.num_groups * self.head_dim
        self.add_weight('wq', [p.input_dim, self.width], p.kernel_initializer)
        self.add_weight('wk', [p.input_dim, self.group_width], p.kernel_initializer)
        self.add_weight('wv', [p.input_dim, self.group_width], p.kernel_initializer)
        self.add_weight('wo', [self.width, p.input_dim], p.kernel_initializer)
        self.has_bias = p.biases != 'none'
        if self.has_bias:
            self.add_weight('bq', [self.width], 'zeros')
            self.add_weight('bk', [self.group_width], 'zeros')
            self.add_weight('bv', [self.group_width], 'zeros')
        if p.biases == 'all':
            self.add_weight('bo', [p.input_dim], 'zeros')
        for name, size in self._sizes_of_scales().items():
            self.add_weight(name, [size], 'zeros' if p.is_zero_centered else 'ones')

    def reads_if_there(self) -> dict[str, str]:
        """Positions are read only to rotate by them."""
        reads = super().reads_if_there()
        return reads if self.params.is_rotary else {
            argument: name for argument, name in reads.items() if argument != 'positions'}

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor,
              positions: tf.Tensor | None = None,
              documents: tf.Tensor | None = None) -> tf.Tensor:
        """[b, T, D] -> [b, T, D] in the dtype of x.

        Args:
          theta, ctx: the weights and the context.
          x: [b, T, D], whose T must be known.
          positions: int [b, T]; by default 0 to T - 1.
          documents: int [b, T], equal where positions are of one document; by default all are.

        Raises:
          ValueError: a shape is not as Params say, or T is not known.
        """
        p = self.params
        self._check(x, positions, documents)
        b, t = dims(x)[:2]
        places = tf.range(t) if positions is None else positions
        turned = self._turning(places[..., tf.newaxis])  # [b or none, T, 1]
        q, k, v = self._projected(theta, ctx, x)
        k = turned(tf.reshape(k, [b, t, self.num_groups, self.head_dim]))
        q = turned(tf.reshape(q, [b, t, p.num_heads, self.head_dim]))
        q = tf.reshape(q, [-1, t, self.num_groups, p.num_heads // self.num_groups, self.head_dim])
        v = tf.reshape(v, [b, t, self.num_groups, self.head_dim])

        documents = None if documents is None else tf.cast(documents, tf.int64)
        y = causal_attention(q, k, v, documents, p.block_size, p.window)  # [b, T, H h]
        return tf.reshape(self.project(theta, ctx, y, 'wo', 'bo'), dims(x))

    def cost(self, x: tf.TensorSpec, positions: tf.TensorSpec | None = None,
             documents: tf.TensorSpec | None = None) -> Cost:
        """Projections, adapters, normalisation, rotations, and the blocks that are left."""
        p = self.params
        self._check(x, positions, documents)
        b, t, _ = static_shape(x, self.path, 'x')
        flops = (projection_flops(b * t, p.input_dim, self.width, self.has_bias)
                 + projection_flops(b * t, self.width, p.input_dim, p.biases == 'all')
                 + 2 * projection_flops(b * t, p.input_dim, self.group_width, self.has_bias)
                 + b * t * self.width  # q, scaled.
                 + attention_flops(b, t, p.num_heads, self.head_dim, p.block_size,
                                   p.window))
        flops += self.adapter_flops(b * t, x.dtype)
        if p.is_rotary:
            flops += rotation_flops(b * t * (self.width + self.group_width),
                                    t * (1 if positions is None else b) * self.head_dim // 2)
        if p.normalises_heads:
            flops += rms_norm_flops(b * t * (p.num_heads + self.num_groups), self.head_dim)
        if p.normalises_projections:
            flops += rms_norm_flops(b * t, self.width) + rms_norm_flops(b * t, self.group_width)
        if p.is_zero_centered:
            flops += sum(self._sizes_of_scales().values())
        return Cost(flops, self.num_weights, as_spec(x))

    # Decoding: x [n, k, D], one position of k hypotheses of each of n sentences.

    def initial_past(self, num_sentences: int | tf.Tensor, ctx: DecodingContext,
                     **specs: tf.TensorSpec) -> NestedMap:
        """Keys and values of no position yet, k and v [n, k, G, 0, h]."""
        shape = [num_sentences, ctx.num_hypotheses, self.num_groups, 0, self.head_dim]
        return NestedMap(k=tf.zeros(shape, specs['x'].dtype), v=tf.zeros(shape, specs['x'].dtype))

    def decode(self, theta: NestedMap, ctx: DecodingContext, kept: NestedMap, past: NestedMap,
               x: tf.Tensor) -> tuple[tf.Tensor, NestedMap]:
        """[n, k, D] -> [n, k, D]: attention to earlier positions and this one.

        What is decoded is one document, which begins at its start, or else at position 0.
        """
        check_last_dim(x, self.params.input_dim, self.path)
        n, k = dims(x)[:2]
        place = ctx.position
        if ctx.starts is not None:
            place = (place - ctx.starts)[:, tf.newaxis, tf.newaxis, tf.newaxis]  # [n, 1, 1, 1]
        turned = self._turning(place)
        new_q, new_k, new_v = self._projected(theta, ctx, x)
        q = turned(tf.reshape(new_q, [n, k, self.num_groups, -1, self.head_dim]))
        one_position = [n, k, self.num_groups, 1, self.head_dim]
        new_k = turned(tf.reshape(new_k, one_position))
        past = NestedMap(k=tf.concat([past.k, new_k], 3),
                         v=tf.concat([past.v, tf.reshape(new_v, one_position)], 3))

        scores = tf.cast(tf.matmul(q, past.k, transpose_b=True), tf.float32)  # [n, k, G, r, t]
        if ctx.starts is not None:
            first = ctx.position + 1 - dims(past.k)[3]   # the place of the first of them
            is_seen = first + tf.range(dims(past.k)[3]) >= ctx.starts[:, tf.newaxis]  # [n, t]
            is_seen = is_seen[:, tf.newaxis, tf.newaxis, tf.newaxis]
            scores = tf.where(is_seen, scores, -math.inf)
        y = tf.matmul(tf.cast(tf.nn.softmax(scores), x.dtype), past.v)  # [n, k, G, r, h]
        y = self.project(theta, ctx, tf.reshape(y, [-1, self.width]), 'wo', 'bo')
        return tf.reshape(y, [n, k, self.params.input_dim]), self._seen_by_next(past)

    def prefill(self, theta: NestedMap, ctx: DecodingContext, kept: NestedMap, past: NestedMap,
                x: tf.Tensor) -> tuple[tf.Tensor, NestedMap]:
        """Positions of a prompt, [n, t, D] -> [n, t, D]; each sees those before it and itself."""
        check_last_dim(x, self.params.input_dim, self.path)
        n, t = dims(x)[:2]
        places = ctx.position + tf.range(t)
        starts = tf.zeros([1], tf.int32) if ctx.starts is None else ctx.starts
        starts = starts[:, tf.newaxis, tf.newaxis]  # [n or 1, 1, 1]
        turned = self._turning(places - starts)  # [n or 1, 1, t]
        new_q, new_k, new_v = (tf.transpose(value, [0, 2, 1, 3]) for value in (
            tf.reshape(rows, [n, t, -1, self.head_dim]) for rows in self._projected(theta, ctx, x)))
        q = tf.reshape(turned(new_q), [n, 1, self.num_groups, -1, self.head_dim])
        past = NestedMap(
            k=tf.concat([past.k, turned(new_k)[:, tf.newaxis]], 3),
            v=tf.concat([past.v, new_v[:, tf.newaxis]], 3))  # [n, 1, G, s, h]

        scores = tf.cast(tf.matmul(q, past.k, transpose_b=True), tf.float32)  # [n, 1, G, r t, s]
        s = dims(past.k)[3]
        by_head = tf.reshape(scores, [n, self.params.num_heads, t, s])
        # Padding sees itself, since what sees nothing becomes nan.
        rows, columns = places[:, tf.newaxis], ctx.position + t - s + tf.range(s)
        is_seen = (rows >= columns) & ((columns >= starts) | (rows < starts))  # [n, t, s]
        if self.params.window:
            is_seen &= rows - columns < self.params.window
        weights = tf.nn.softmax(tf.where(is_seen[:, tf.newaxis], by_head, -math.inf))
        weights = tf.reshape(tf.cast(weights, x.dtype), dims(scores))
        y = tf.reshape(tf.matmul(weights, past.v), [n, -1, t, self.head_dim])
        y = tf.reshape(tf.transpose(y, [0, 2, 1, 3]), [n * t, self.width])
        y = tf.reshape(self.project(theta, ctx, y, 'wo', 'bo'), dims(x))
        return y, self._seen_by_next(past)

    def _seen_by_next(self, past: NestedMap) -> NestedMap:
        """Keys and values of the earlier positions that the next one sees, [n, k, G, s, h]."""
        if not self.params.window:
            return past
        first = tf.maximum(dims(past.k)[3] + 1 - self.params.window, 0)
        return NestedMap(k=past.k[:, :, :, first:], v=past.v[:, :, :, first:])

    # Parts.

    def _projected(self, theta: NestedMap, ctx: Context,
                   x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Queries [rows, H h], scaled, keys and values [rows, G h]."""
        q = self.project(theta, ctx, x, 'wq', 'bq')
        k = self.project(theta, ctx, x, 'wk', 'bk')
        if self.params.normalises_heads or self.params.normalises_projections:
            q, k = self._normalised(q, theta.q_scale), self._normalised(k, theta.k_scale)
        return q * self.score_dim ** -0.5, k, self.project(theta, ctx, x, 'wv', 'bv')

    def _normalised(self, rows: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        """Every head of [rows, H h], or all of a row, divided by its size."""
        vectors = tf.reshape(rows, [-1, scale.shape[0]])
        scale = 1 + scale if self.params.is_zero_centered else scale
        return tf.reshape(rms_norm(vectors, scale, self.params.epsilon), dims(rows))

    def _sizes_of_scales(self) -> dict[str, int]:
        """The weights that scale what is normalised, by name."""
        if self.params.normalises_heads:
            return {'q_scale': self.head_dim, 'k_scale': self.head_dim}
        if self.params.normalises_projections:
            return {'q_scale': self.width, 'k_scale': self.group_width}
        return {}

    def _turning(self, places: tf.Tensor) -> Callable[[tf.Tensor], tf.Tensor]:
        """What rotates heads [..., h] by their places, which broadcast to [...]."""
        p = self.params
        if not p.is_rotary:
            return lambda heads: heads
        cos, sin = rotations(places, self.head_dim, p.rotary_base, p.rotary_scaling)
        return lambda heads: rotate(heads, cos, sin)

    def _check(self, x: tf.Tensor | tf.TensorSpec, positions: tf.Tensor | tf.TensorSpec | None,
               documents: tf.Tensor | tf.TensorSpec | None) -> None:
        """Raises ValueError for inputs that do not agree with Params or with x."""
        check_last_dim(x, self.params.input_dim, self.path)
        if x.shape.rank != 3 or x.shape[1] is None:
            raise ValueError(f'{self.path}: x is {x.shape}, but must be [b, T, D] with T known; '
                             'give sequences of one length.')
        for name, value in ('positions', positions), ('documents', documents):
            if value is None:
                continue
            if not value.dtype.is_integer or not value.shape.is_compatible_with(x.shape[:2]):
                raise ValueError(f'{self.path}: {name} is {value.dtype.name} {value.shape}, but '
                                 f'must be whole numbers {x.shape[:2]}, one for each position of '
                                 'x; correct the input or Params.reads.')
