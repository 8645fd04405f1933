"""BytesPerToken: the metric that makes bits per byte of a loss per token."""
from __future__ import annotations

import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.static_shapes import num_elements, static_shape
from lingpipe.layers.weighting import check_weight, weight_by_row


class BytesPerToken(Layer):
    """Emits the mean of `bytes` [b, T] as the metric 'bytes_per_token', weighted as the loss is."""

    class Params(Layer.Params):
        """It writes no value."""
        writes: str | dict[str, str] = field({})

    params: Params

    def fprop(self, theta: NestedMap, ctx: Context, bytes: tf.Tensor, weight: tf.Tensor) -> None:
        """Emits the metric."""
        weight = weight_by_row(weight, bytes, self.path)
        ctx.emit_metric(self.path, 'bytes_per_token', tf.reduce_sum(bytes * weight),
                        tf.reduce_sum(weight))

    def cost(self, bytes: tf.TensorSpec, weight: tf.TensorSpec) -> Cost:
        """3 operations a token."""
        static_shape(bytes, self.path, 'bytes')
        check_weight(weight, bytes.shape, self.path)
        return Cost(3. * num_elements(bytes), 0)
