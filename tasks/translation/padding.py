"""Padding: ids that stand for no token, and what must not see them.

Shapes: b micro-batch, S time.
"""
from __future__ import annotations

import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.layers.ids import as_indices
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.static_shapes import num_elements, static_shape
from lingpipe.layers.weighting import check_weight, expanded


class PaddingMask(Layer):
    """ids [b, S] -> bool [b, S], False where an id is padding: the mask of attention."""

    class Params(Layer.Params):
        """The id."""
        padding_id: int = field(0, 'The id of padding.', least=0)

    params: Params

    def fprop(self, theta: NestedMap, ctx: Context, ids: tf.Tensor) -> tf.Tensor:
        """[b, S] -> bool [b, S]."""
        return ids != self.params.padding_id

    def cost(self, ids: tf.TensorSpec) -> Cost:
        """Nothing is computed in floating point."""
        return Cost(0., 0, tf.TensorSpec(static_shape(ids, self.path, 'ids'), tf.bool))


class TokenWeight(Layer):
    """The weight of every token in the loss: its example's or its own, and 0 for padding.

    labels [b, S], weight [b] or [b, S] -> float32 [b, S].
    """

    class Params(Layer.Params):
        """The id, and the name that is written."""
        padding_id: int = field(0, 'The id of padding.', least=0)
        writes: str | dict[str, str] = field('token_weight')

    params: Params

    def fprop(self, theta: NestedMap, ctx: Context, labels: tf.Tensor,
              weight: tf.Tensor) -> tf.Tensor:
        """float32 [b, S]. Raises ValueError for a weight of another shape."""
        is_token = as_indices(labels) != self.params.padding_id
        return tf.where(is_token, expanded(weight, labels.shape, self.path), 0.)

    def cost(self, labels: tf.TensorSpec, weight: tf.TensorSpec) -> Cost:
        """1 operation a token."""
        check_weight(weight, labels.shape, self.path)
        flops = float(num_elements(labels))
        y = tf.TensorSpec(static_shape(labels, self.path, 'labels'), tf.float32)
        return Cost(flops, 0, y)
