"""RMSNorm (Zhang and Sennrich, 2019, arXiv:1910.07467): divides the last axis by its size.

The gradient is written out: dx = (d - h mean(d h)) / rms with d = dy * scale and h the normalised
x, so that the backward pass reads x, 1/rms and the scale alone.
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
from lingpipe.layers.static_shapes import as_spec
from lingpipe.process.graph_lifetime import custom_gradient


class RMSNorm(Layer):
    """x / sqrt(mean(x^2) + epsilon) * scale over the last axis; the scale is trained.

    What Gemma trains is how far the scale is from 1.
    """

    is_traced_once = True
    is_positionwise = True

    class Params(Layer.Params):
        """Channels and epsilon."""
        dim: int = field(REQUIRED, 'Channels of the input.', least=1)
        epsilon: float = field(1e-5, 'Added to the mean of squares.', least=0)
        is_zero_centered: bool = field(False, 'Whether the scale is 1 plus the weight, which '
                                              'begins at 0, in place of the weight.')

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        self.add_weight('scale', [p.dim], 'zeros' if p.is_zero_centered else 'ones')

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """[..., D] -> [..., D] in the dtype of x.

        Raises:
          ValueError: the last dimension of x is not `dim`.
        """
        p = self.params
        check_last_dim(x, p.dim, self.path)
        scale = 1 + theta.scale if p.is_zero_centered else theta.scale
        return rms_norm(x, scale, p.epsilon)

    def cost(self, x: tf.TensorSpec) -> Cost:
        """4 operations an element, 2 a row, and 1 a channel if it is zero-centered."""
        p = self.params
        check_last_dim(x, p.dim, self.path)
        flops = rms_norm_flops(num_rows(x, self.path), p.dim) + p.dim * p.is_zero_centered
        return Cost(flops, self.num_weights, as_spec(x))


def rms_norm(x: tf.Tensor, scale: tf.Tensor, epsilon: float) -> tf.Tensor:
    """x / sqrt(mean(x^2) + epsilon) * scale over the last axis.

    It is computed in float32; the result has the dtype of x.
    """
    @custom_gradient
    def normalised(x: tf.Tensor, scale: tf.Tensor) -> tuple[
            tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
        """Returns the output, and the function of the gradients of both arguments."""
        per_rms = tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + epsilon)
        h = x * per_rms

        def gradient(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            d = dy * scale
            dx = (d - h * tf.reduce_mean(d * h, -1, keepdims=True)) * per_rms
            return dx, tf.reduce_sum(dy * h, list(range(x.shape.rank - 1)))

        return h * scale, gradient

    return tf.cast(normalised(tf.cast(x, tf.float32), scale), x.dtype)


def rms_norm_flops(num_rows: int, dim: int) -> float:
    """FLOPs of `rms_norm`. An element: square, mean, normalise, scale. A row: epsilon, rsqrt."""
    return 4. * num_rows * dim + 2. * num_rows
