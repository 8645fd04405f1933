"""LearnedPositions: a learned vector for each position, as GPT-2 has them (Radford et al., 2019).

Unlike PositionEmbedding, it follows `positions`, by which documents of one example begin anew, and
prompts are read many ids at once.

Shapes: b micro-batch, T time, D model, P positions.
"""
from __future__ import annotations

import keras
import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context, DecodingContext
from lingpipe.layers.cost import Cost
from lingpipe.layers.ids import as_indices, check_ids
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.shapes import check_last_dim, dims
from lingpipe.layers.static_shapes import as_spec, num_elements, static_shape


class LearnedPositions(Layer):
    """x plus row `position` of w [P, D]; x [b, T, D] -> [b, T, D].

    Positions are the network's value `positions`, int [b, T], if it has one, and otherwise 0 to
    T - 1.
    """

    is_traced_once = True
    optional_reads = ('positions',)
    mask_rule = 'passes'
    can_start_late = True

    class Params(Layer.Params):
        """The size of the table."""
        dim: int = field(REQUIRED, 'D, the channels of the input.', least=1)
        num_positions: int = field(REQUIRED, 'P, the most positions of a sequence.', least=1)

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        self.add_weight('w', [self.params.num_positions, self.params.dim],
                        keras.initializers.RandomNormal(stddev=0.02))

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor,
              positions: tf.Tensor | None = None) -> tf.Tensor:
        """[b, T, D] -> [b, T, D] in the dtype of x.

        Raises:
          ValueError: x has other channels, or more than P positions.
        """
        self._check(x, positions)
        rows = (theta.w[:dims(x)[1]] if positions is None
                else tf.gather(theta.w, as_indices(positions)))
        return x + tf.cast(rows, x.dtype)

    def cost(self, x: tf.TensorSpec, positions: tf.TensorSpec | None = None) -> Cost:
        """A sum; looking up is free."""
        self._check(x, positions)
        static_shape(x, self.path, 'x')
        return Cost(float(num_elements(x)), self.num_weights, as_spec(x))

    def id_ranges(self, **specs: tf.TensorSpec) -> dict[str, int]:
        """Positions are below P."""
        return {'positions': self.params.num_positions} if 'positions' in specs else {}

    # Decoding.

    def decode(self, theta: NestedMap, ctx: DecodingContext, kept: NestedMap, past: NestedMap,
               x: tf.Tensor) -> tuple[tf.Tensor, NestedMap]:
        """One position, [n, k, D] -> [n, k, D]. Raises ValueError if there may be more than P."""
        return self._moved(theta, ctx, x, tf.reshape(ctx.position, [1, 1])), past

    def prefill(self, theta: NestedMap, ctx: DecodingContext, kept: NestedMap, past: NestedMap,
                x: tf.Tensor) -> tuple[tf.Tensor, NestedMap]:
        """Positions of a prompt, [n, t, D] -> [n, t, D]."""
        places = ctx.position + tf.range(dims(x)[1])
        return self._moved(theta, ctx, x, places[tf.newaxis]), past

    def _moved(self, theta: NestedMap, ctx: DecodingContext, x: tf.Tensor,
               places: tf.Tensor) -> tf.Tensor:
        """x plus the vectors of places [1, t], which count from the start of each sentence."""
        p = self.params
        check_last_dim(x, p.dim, self.path)
        if ctx.max_length > p.num_positions:
            raise ValueError(f'{self.path}: up to {ctx.max_length:,} positions are decoded, but '
                             f'num_positions={p.num_positions:,} were learned; lower '
                             'max_length, as task.decode.max_length of a language model.')
        if ctx.starts is not None:
            # Nothing sees the padding before a sentence, nor what is behind one that has ended
            # while sentences that began later go on.
            places = tf.clip_by_value(places - ctx.starts[:, tf.newaxis], 0, p.num_positions - 1)
        return x + tf.cast(tf.gather(theta.w, places), x.dtype)

    def _check(self, x: tf.Tensor | tf.TensorSpec,
               positions: tf.Tensor | tf.TensorSpec | None) -> None:
        """Raises ValueError if x has other channels, or more positions than were learned."""
        p = self.params
        check_last_dim(x, p.dim, self.path)
        if x.shape[1] is not None and x.shape[1] > p.num_positions:
            raise ValueError(f'{self.path}: x has {x.shape[1]:,} positions, but '
                             f'num_positions={p.num_positions:,} were learned; cut the sequences.')
        if positions is not None:
            check_ids(positions, self.path, 'positions')
