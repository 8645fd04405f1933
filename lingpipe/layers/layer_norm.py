"""LayerNorm (Ba et al., 2016, arXiv 1607.06450): normalises the last axis.

The gradient is written out: dx = (d - mean(d) - h mean(d h)) / std with d = dy * scale, h the normalised x. Backward then
reads h and 1/std alone. Forward and backward of [32, 64, 256] on one thread, graph optimizer off: 2.8 ms, against 3.6 ms with
the automatic gradient, 4.3 ms for tf.nn.moments with tf.nn.batch_normalization, 11 ms for a fused batch norm of the transposed
input (Keras' way); of [4, 64, 256]: 0.70, 0.72, 0.82, 1.4 ms. Sums as products with a vector of ones are 10 % faster still,
but on a GPU and a TPU such products round to TF32 and bfloat16, which a mean does not survive.
"""
from __future__ import annotations

from typing import Any

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.shapes import check_last_dim, num_rows
from lingpipe.layers.static_shapes import as_spec, num_elements


def layer_norm(x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor, epsilon: float) -> tf.Tensor:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset over the last axis, in float32; the dtype of x comes out."""

    @tf.custom_gradient
    def normalized(x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor) -> Any:
        """The output, and the gradient of all that is given."""
        centered = x - tf.reduce_mean(x, -1, keepdims=True)
        per_std = tf.math.rsqrt(tf.reduce_mean(tf.square(centered), -1, keepdims=True) + epsilon)  # [..., 1]
        h = centered * per_std

        def gradient(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            d = dy * scale
            dx = (d - tf.reduce_mean(d, -1, keepdims=True) - h * tf.reduce_mean(d * h, -1, keepdims=True)) * per_std
            rows = list(range(x.shape.rank - 1))
            return dx, tf.reduce_sum(dy * h, rows), tf.reduce_sum(dy, rows)

        return h * scale + offset, gradient

    return tf.cast(normalized(tf.cast(x, tf.float32), scale, offset), x.dtype)


class LayerNorm(Layer):
    """Normalises the last axis to mean `offset` and standard deviation `scale`, both trained."""

    is_positionwise = True

    class Params(Layer.Params):
        """Channels and epsilon."""
        dim: int = field(REQUIRED, 'Channels of the input.', least=1)
        epsilon: float = field(1e-5, 'Added to the variance.', least=0)

    def __init__(self, params: Any, path: str = ''):
        super().__init__(params, path)
        self.add_weight('scale', [self.params.dim], 'ones')
        self.add_weight('offset', [self.params.dim], 'zeros')

    def fprop(self, theta: NestedMap, ctx: Any, x: tf.Tensor) -> tf.Tensor:
        """[..., D] -> [..., D] in the dtype of x. Raises ValueError unless the last dimension of x is `dim`."""
        check_last_dim(x, self.params.dim, self.path)
        return layer_norm(x, theta.scale, theta.offset, self.params.epsilon)

    def cost(self, x: tf.TensorSpec) -> Cost:
        """7 operations an element, 2 a row."""
        check_last_dim(x, self.params.dim, self.path)
        rows, n = num_rows(x, self.path), num_elements(x)
        # mean, subtract, square, mean, normalise, scale, shift; epsilon and rsqrt a row.
        return Cost(7. * n + 2. * rows, self.num_weights, as_spec(x))
