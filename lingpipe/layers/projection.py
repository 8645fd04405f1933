"""Projection: a matrix product over the last axis, with or without a bias.

Shapes: D input channels, U units, rows = the product of all other dimensions.
"""
from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from lingpipe.layers.shapes import as_rows
from lingpipe.process.graph_lifetime import custom_gradient


def project(x: tf.Tensor, w: tf.Tensor, b: tf.Tensor | None = None) -> tf.Tensor:
    """x @ w + b as one matrix product, in the dtype of x; x [..., D], w [D, U] -> [rows, U]."""
    y = tf.matmul(as_rows(x), tf.cast(w, x.dtype))
    return y if b is None else add_bias(y, b)


def add_bias(y: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """y + b in the dtype of y; y [..., U], b [U].

    TensorFlow's gradient of a bias adds up bfloat16 numbers in bfloat16, in which 256 + 1 is 256:
    of 4,096 rows it may lose nine tenths. Its sums, which are used here, add in float32.
    """
    if y.dtype.size > 2:
        return tf.nn.bias_add(y, tf.cast(b, y.dtype))
    return _add_narrow_bias(y, tf.cast(b, y.dtype))


@custom_gradient
def _add_narrow_bias(y: tf.Tensor, b: tf.Tensor) -> tuple[
        tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
    def gradient(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return dy, tf.reduce_sum(dy, list(range(dy.shape.rank - 1)))

    return tf.nn.bias_add(y, b), gradient


def projection_flops(rows: int, input_dim: int, units: int, has_bias: bool) -> float:
    """FLOPs of `project`."""
    return float(rows) * units * (2 * input_dim + has_bias)
