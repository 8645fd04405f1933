"""Toy layers: what the networks of tests use besides lingpipe's own layers."""
from __future__ import annotations

from typing import Any

import tensorflow as tf

from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost


class Add(Layer):
    """x + skip."""

    def fprop(self, theta: Any, ctx: Any, x: tf.Tensor, skip: tf.Tensor) -> tf.Tensor:
        return x + skip

    def cost(self, x: tf.TensorSpec, skip: tf.TensorSpec) -> Cost:
        return Cost(x.shape.num_elements(), 0, x)


class FailAbove(Layer):
    """Returns x, and fails if an element of it is above 1000."""

    def fprop(self, theta: Any, ctx: Any, x: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.debugging.assert_less(x, 1e3, message='above 1000')]):
            return tf.identity(x)
