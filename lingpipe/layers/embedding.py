"""Embedding and PositionEmbedding: vectors of ids and of positions.

Shapes: b micro-batch, T time, D model, V vocabulary.
"""
from __future__ import annotations

import math

import keras
import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context, DecodingContext
from lingpipe.layers.cost import Cost
from lingpipe.layers.ids import as_indices, check_ids, ids_below
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.shapes import check_last_dim, dims
from lingpipe.layers.shards import Shardable
from lingpipe.layers.static_shapes import as_spec, num_elements, static_shape


class Embedding(Shardable):
    """Row ids[...] of the table w [V, D]; ids [...] -> [..., D].

    A shard has some of the rows; those of earlier shards are in `partial`.

    An id outside the table is found in the first mini-batch of every input, and later where it
    makes a step fail. On a CPU, TensorFlow raises an error; shards give NaN; on a GPU, the row is
    zeros. The gradient is tf.IndexedSlices, which tf.convert_to_tensor makes dense.
    """

    is_positionwise = True

    class Params(Shardable.Params):
        """Size of the table, and the dtype of what comes out."""
        vocab_size: int = field(REQUIRED, 'V, the number of rows.', least=1)
        dim: int = field(REQUIRED, 'D, the channels of a row.', least=1)
        dtype: str = field('float32', 'Dtype of the output, and so of the layers after it: '
                                      "'float32' or 'bfloat16'.")
        is_scaled: bool = field(False, 'Whether the output is multiplied by sqrt(D).')

        def check(self) -> None:
            """Raises ValueError for a dtype other than float32 and bfloat16."""
            super().check()
            if self.dtype not in ('float32', 'bfloat16'):
                raise ValueError(f'dtype={self.dtype!r} is unknown here; '
                                 "write 'float32' or 'bfloat16'.")

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        self.rows = self.part(p.vocab_size, 'vocab_size')
        self.add_weight('w', [len(self.rows), p.dim],
                        keras.initializers.RandomNormal(stddev=p.dim ** -0.5))

    def fprop(self, theta: NestedMap, ctx: Context, ids: tf.Tensor,
              partial: tf.Tensor | None = None) -> tf.Tensor:
        """ids [...] -> [..., D].

        Args:
          theta, ctx: the weights and the context.
          ids: of any numeric type.
          partial: [..., D], whose rows stay where an id is another shard's.

        Returns:
          The rows, in Params.dtype or the dtype of `partial`.
        """
        self.check_partial(partial)
        check_ids(ids, self.path, 'ids')
        if self.is_whole:
            index = (ids_below(ids, self.params.vocab_size) if ids.dtype.is_floating
                     else as_indices(ids))
            return self._scaled(tf.cast(tf.gather(theta.w, index), self.params.dtype))

        # The row is negative if there is no such id.
        row = ids_below(ids, self.params.vocab_size) - self.rows.start
        is_mine = tf.logical_and(row >= 0, row < len(self.rows))[..., tf.newaxis]
        vectors = tf.gather(theta.w, tf.clip_by_value(row, 0, len(self.rows) - 1))
        vectors = tf.cast(vectors, self._dtype(partial))
        other = tf.constant(math.nan, vectors.dtype) if partial is None else partial
        return tf.where(is_mine, self._scaled(vectors), other)

    def cost(self, ids: tf.TensorSpec, partial: tf.TensorSpec | None = None) -> Cost:
        """Looking up is free; scaling and choosing are 1 operation an element each."""
        self.check_partial(partial)
        check_ids(ids, self.path, 'ids')
        shape = [*static_shape(ids, self.path, 'ids'), self.params.dim]
        y = tf.TensorSpec(shape, self._dtype(partial))
        flops_per_element = self.params.is_scaled + (not self.is_whole)
        return Cost(float(num_elements(y) * flops_per_element), self.num_weights, y)

    def id_ranges(self, **specs: tf.TensorSpec) -> dict[str, int]:
        """Ids are below V."""
        return {'ids': self.params.vocab_size}

    def _dtype(self, partial: tf.Tensor | tf.TensorSpec | None) -> tf.DType:
        return tf.as_dtype(self.params.dtype) if partial is None else partial.dtype

    def _scaled(self, y: tf.Tensor) -> tf.Tensor:
        return y * math.sqrt(self.params.dim) if self.params.is_scaled else y


class PositionEmbedding(Layer):
    """x plus a vector for each position; x [b, T, D].

    sinusoidal: sines of D/2 frequencies, geometric from 1 to 1/10000, then their cosines (Vaswani
      et al., 2017, section 3.5), of the positions from `first` on.
    learned: row t of w [max_length, D].
    """

    mask_rule = 'passes'

    class Params(Layer.Params):
        """The kind of the vectors, and their size."""
        dim: int = field(REQUIRED, 'D, the channels of the input.', least=1)
        kind: str = field('sinusoidal', "'sinusoidal' or 'learned'.")
        max_length: int = field(0, 'The largest T, for learned positions.', least=0)
        first: int = field(0, 'The number of the first position, of sinusoidal ones. In fairseq, '
                              'it is the id of padding plus 1.', least=0)

        def check(self) -> None:
            """Raises ValueError for fields that do not go together, or an unknown kind."""
            if self.kind not in ('sinusoidal', 'learned'):
                raise ValueError(f"kind={self.kind!r} is unknown; write 'sinusoidal' or 'learned'.")
            if self.kind == 'learned' and self.max_length < 1:
                raise ValueError(f'max_length={self.max_length}, but learned positions need one '
                                 'vector each; set max_length to the largest T.')
            if self.kind == 'learned' and self.first:
                raise ValueError(f'first={self.first}, but learned positions begin at the first '
                                 'row; leave it out.')
            if self.kind == 'sinusoidal' and self.dim % 2:
                raise ValueError(f'dim={self.dim} is odd, but half of the channels are sines, '
                                 'half cosines; make it even.')

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        if p.kind == 'learned':
            self.add_weight('w', [p.max_length, p.dim],
                            keras.initializers.RandomNormal(stddev=0.02))

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """[b, T, D] -> [b, T, D]. Raises ValueError for more positions than were learned."""
        self._check(x)
        t = dims(x)[1]
        is_learned = self.params.kind == 'learned'
        positions = theta.w[:t] if is_learned else sinusoids(t, self.params.dim, self.params.first)
        return x + tf.cast(positions, x.dtype)

    def decode(self, theta: NestedMap, ctx: DecodingContext, kept: NestedMap, past: NestedMap,
               x: tf.Tensor) -> tuple[tf.Tensor, NestedMap]:
        """Adds the vector of ctx.position to all; [n, k, D] -> [n, k, D].

        Raises:
          ValueError: fewer positions were learned than are to be decoded.
        """
        p = self.params
        check_last_dim(x, p.dim, self.path)
        if p.kind == 'learned' and ctx.max_length > p.max_length:
            raise ValueError(f'{self.path}: up to {ctx.max_length} positions are decoded, but '
                             f'max_length={p.max_length} were learned; lower the length of what '
                             'is decoded.')
        if p.kind == 'learned':
            vector = theta.w[ctx.position]
        else:
            vector = _waves(tf.reshape(ctx.position, [1]), p.dim, p.first)
        return x + tf.cast(vector, x.dtype), past

    def cost(self, x: tf.TensorSpec) -> Cost:
        """1 operation an element, and 1.5 an element of [T, D] for sinusoids."""
        self._check(x)
        t = static_shape(x, self.path, 'x')[1]
        flops_of_waves = 0. if self.params.kind == 'learned' else 1.5 * t * self.params.dim
        return Cost(num_elements(x) + flops_of_waves, self.num_weights, as_spec(x))

    def _check(self, x: tf.Tensor | tf.TensorSpec) -> None:
        """Raises ValueError if x has other channels, or more positions than were learned."""
        p = self.params
        check_last_dim(x, p.dim, self.path)
        if p.kind == 'learned' and x.shape[1] is not None and x.shape[1] > p.max_length:
            raise ValueError(f'{self.path}: x has {x.shape[1]} positions, but '
                             f'max_length={p.max_length} were learned; raise max_length or cut '
                             'the sequences.')


def sinusoids(length: int | tf.Tensor, dim: int, first: int = 0) -> tf.Tensor:
    """[length, dim] float32: sin(t / 10000^(i / (dim/2 - 1))) for i < dim/2, then the cosines.

    t counts from `first`.
    """
    return _waves(tf.range(length), dim, first)


def _waves(positions: tf.Tensor, dim: int, first: int) -> tf.Tensor:
    half = dim // 2
    positions = positions + first if first else positions
    periods = [10000. ** (i / max(1, half - 1)) for i in range(half)]
    angles = tf.cast(positions, tf.float32)[:, tf.newaxis] / tf.constant(periods)  # [T, D/2]
    return tf.concat([tf.sin(angles), tf.cos(angles)], 1)
