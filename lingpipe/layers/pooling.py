"""MaxPool2D, AvgPool2D, GlobalAvgPool2D on images [b, height, width, channels]."""
from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.layers.base import Layer
from lingpipe.layers.convolution import check_padding, output_size
from lingpipe.layers.cost import Cost
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.static_shapes import num_elements, static_shape


class _Pool(Layer):
    """What the poolings share."""

    class Params(Layer.Params):
        """The window, and how it moves."""
        pool_size: tuple[int, int] = field((2, 2), 'Height and width of the window.', least=1)
        strides: int = field(2, 'Pixels from one output to the next, both ways.', least=1)
        padding: str = field('same', "'same': output size = input size / strides, rounded up; 'valid': whole windows only.")

        def check(self) -> None:
            check_padding(self.padding)

    def _output(self, x: tf.TensorSpec) -> tf.TensorSpec:
        p = self.params
        b, height, width, channels = static_shape(x, self.path, 'x')
        return tf.TensorSpec([b, output_size(height, p.pool_size[0], p.strides, p.padding),
                              output_size(width, p.pool_size[1], p.strides, p.padding), channels], x.dtype)


class MaxPool2D(_Pool):
    """The maximum of every window and channel."""

    def fprop(self, theta: NestedMap, ctx: Any, x: tf.Tensor) -> tf.Tensor:
        """[b, height, width, C] -> [b, height / strides, width / strides, C]; see Params.padding."""
        return tf.nn.max_pool2d(x, self.params.pool_size, self.params.strides, self.params.padding.upper())

    def cost(self, x: tf.TensorSpec) -> Cost:
        """The window for each output."""
        y = self._output(x)
        return Cost(num_elements(y) * float(math.prod(self.params.pool_size)), 0, y)


class AvgPool2D(_Pool):
    """The mean of every window and channel; of a window that reaches beyond the image, the mean of what is inside."""

    def fprop(self, theta: NestedMap, ctx: Any, x: tf.Tensor) -> tf.Tensor:
        """[b, height, width, C] -> [b, height / strides, width / strides, C]; see Params.padding."""
        return tf.nn.avg_pool2d(x, self.params.pool_size, self.params.strides, self.params.padding.upper())

    def cost(self, x: tf.TensorSpec) -> Cost:
        """The window for each output."""
        y = self._output(x)
        return Cost(num_elements(y) * float(math.prod(self.params.pool_size)), 0, y)


class GlobalAvgPool2D(Layer):
    """The mean of every channel, summed in float32; x [b, h, w, C] -> [b, C]."""

    def fprop(self, theta: NestedMap, ctx: Any, x: tf.Tensor) -> tf.Tensor:
        """[b, h, w, C] -> [b, C] in the dtype of x."""
        return tf.cast(tf.reduce_mean(tf.cast(x, tf.float32), [1, 2]), x.dtype)

    def cost(self, x: tf.TensorSpec) -> Cost:
        """1 operation an element."""
        b, _, _, channels = static_shape(x, self.path, 'x')
        return Cost(float(num_elements(x)), 0, tf.TensorSpec([b, channels], x.dtype))
