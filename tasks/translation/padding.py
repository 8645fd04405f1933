"""Padding: ids that stand for no token, and what must not see them.

Shapes: b micro-batch, S time.
"""
from __future__ import annotations

from typing import Any

import tensorflow as tf

from lingpipe.cost import Cost
from lingpipe.hyperparams import field
from lingpipe.layer import Layer
from lingpipe.nested import NestedMap
from lingpipe.tracing import num_elements, static_shape


class PaddingMask(Layer):
    """ids [b, S] -> bool [b, S], False where an id is padding: the mask of attention."""

    class Params(Layer.Params):
        """The id."""
        padding_id: int = field(0, 'The id of padding.', least=0)

    def fprop(self, theta: NestedMap, ctx: Any, ids: tf.Tensor) -> tf.Tensor:
        """[b, S] -> bool [b, S]."""
        return ids != self.params.padding_id

    def cost(self, ids: tf.TensorSpec) -> Cost:
        """Nothing."""
        return Cost(0., 0, 0., tf.TensorSpec(static_shape(ids, self.path, 'ids'), tf.bool))


class TokenWeight(Layer):
    """The weight of every token in the loss: its example's, or its own, and 0 where the label is padding.

    labels [b, S], weight [b] or [b, S] -> float32 [b, S].
    """

    class Params(Layer.Params):
        """The id, and the name that is written."""
        padding_id: int = field(0, 'The id of padding.', least=0)
        writes: str | dict[str, str] = field('token_weight')

    def fprop(self, theta: NestedMap, ctx: Any, labels: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
        """float32 [b, S]. Raises ValueError for a weight of another shape."""
        self._check(labels, weight)
        weight = tf.cast(weight, tf.float32)
        return tf.where(labels != self.params.padding_id, weight if weight.shape.rank == 2 else weight[:, tf.newaxis], 0.)

    def cost(self, labels: tf.TensorSpec, weight: tf.TensorSpec) -> Cost:
        """1 operation a token; keeps which tokens count."""
        self._check(labels, weight)
        n = float(num_elements(labels))
        return Cost(n, 0, n, tf.TensorSpec(static_shape(labels, self.path, 'labels'), tf.float32))

    def _check(self, labels: Any, weight: Any) -> None:
        if not any(weight.shape.is_compatible_with(labels.shape[:rank]) for rank in (1, 2)):
            raise ValueError(f'{self.path}: weight is {weight.shape}, but labels is {labels.shape}; give one weight an example, '
                             f'{labels.shape[:1]}, or one a token.')
