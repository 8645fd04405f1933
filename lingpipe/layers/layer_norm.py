"""LayerNorm (Ba et al., 2016, arXiv:1607.06450): normalises the last axis.

The gradient is written out: dx = (d - mean(d) - h mean(d h)) / std with d = dy * scale and h the
normalised x. The backward pass then reads h and 1/std alone. Forward and backward on one thread,
with the graph optimizer off, in ms:

                                                      [32, 64, 256]   [4, 64, 256]
    this                                                    2.8            0.70
    the automatic gradient                                  3.6            0.72
    tf.nn.moments with tf.nn.batch_normalization            4.3            0.82
    fused batch norm of the transposed input, as Keras     11              1.4

Sums as products with a vector of ones are 10 % faster still. But on a GPU and a TPU, such products
are rounded to TF32 and bfloat16, which is too coarse for a mean.
"""
from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.shapes import check_last_dim, num_rows
from lingpipe.layers.static_shapes import as_spec, num_elements
from lingpipe.process.graph_lifetime import custom_gradient


class LayerNorm(Layer):
    """Normalises the last axis to mean `offset` and standard deviation `scale`, both trained."""

    is_traced_once = True
    is_positionwise = True

    class Params(Layer.Params):
        """Channels and epsilon."""
        dim: int = field(REQUIRED, 'Channels of the input.', least=1)
        epsilon: float = field(1e-5, 'Added to the variance.', least=0)

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        self.add_weight('scale', [self.params.dim], 'ones')
        self.add_weight('offset', [self.params.dim], 'zeros')

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """[..., D] -> [..., D] in the dtype of x.

        Raises:
          ValueError: the last dimension of x is not `dim`.
        """
        check_last_dim(x, self.params.dim, self.path)
        return layer_norm(x, theta.scale, theta.offset, self.params.epsilon)

    def cost(self, x: tf.TensorSpec) -> Cost:
        """7 operations an element, 2 a row."""
        check_last_dim(x, self.params.dim, self.path)
        rows = num_rows(x, self.path)
        # An element: mean, subtract, square, mean, normalise, scale, shift. A row: epsilon, rsqrt.
        return Cost(7. * num_elements(x) + 2. * rows, self.num_weights, as_spec(x))


def layer_norm(x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor, epsilon: float) -> tf.Tensor:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset over the last axis.

    It is computed in float32; the result has the dtype of x.
    """
    @custom_gradient
    def normalised(x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor) -> tuple[
            tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]]:
        """Returns the output, and the function of the gradients of all arguments."""
        centered = x - tf.reduce_mean(x, -1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centered), -1, keepdims=True)
        per_std = tf.math.rsqrt(variance + epsilon)  # [..., 1]
        h = centered * per_std

        def gradient(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            d = dy * scale
            mean_d = tf.reduce_mean(d, -1, keepdims=True)
            mean_dh = tf.reduce_mean(d * h, -1, keepdims=True)
            dx = (d - mean_d - h * mean_dh) * per_std
            row_axes = list(range(x.shape.rank - 1))
            return dx, tf.reduce_sum(dy * h, row_axes), tf.reduce_sum(dy, row_axes)

        return h * scale + offset, gradient

    return tf.cast(normalised(tf.cast(x, tf.float32), scale, offset), x.dtype)
