"""MaxPool2D, AvgPool2D and GlobalAvgPool2D on images [b, height, width, channels]."""
from __future__ import annotations

import math

import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
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
        padding: str = field('same', "'same': output size = input size / strides, rounded up; "
                                     "'valid': whole windows only.")

        def check(self) -> None:
            """Raises ValueError for an unknown padding."""
            check_padding(self.padding)

    params: Params

    def cost(self, x: tf.TensorSpec) -> Cost:
        """The size of the window for each output."""
        p = self.params
        b, height, width, channels = static_shape(x, self.path, 'x')
        sizes = [output_size(size, window, p.strides, p.padding)
                 for size, window in zip((height, width), p.pool_size, strict=True)]
        y = tf.TensorSpec([b, *sizes, channels], x.dtype)
        return Cost(num_elements(y) * float(math.prod(p.pool_size)), 0, y)


class MaxPool2D(_Pool):
    """The maximum of every window and channel."""

    is_traced_once = True

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """[b, height, width, C] -> [b, height / strides, width / strides, C]."""
        p = self.params
        return tf.nn.max_pool2d(x, p.pool_size, p.strides, p.padding.upper())


class AvgPool2D(_Pool):
    """The mean of every window and channel.

    If a window reaches beyond the image, it is the mean of what is inside.
    """

    is_traced_once = True

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """[b, height, width, C] -> [b, height / strides, width / strides, C]."""
        p = self.params
        return tf.nn.avg_pool2d(x, p.pool_size, p.strides, p.padding.upper())


class GlobalAvgPool2D(Layer):
    """The mean of every channel, summed in float32; x [b, h, w, C] -> [b, C]."""

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """[b, h, w, C] -> [b, C] in the dtype of x."""
        return tf.cast(tf.reduce_mean(tf.cast(x, tf.float32), [1, 2]), x.dtype)

    def cost(self, x: tf.TensorSpec) -> Cost:
        """1 operation an element."""
        b, _, _, channels = static_shape(x, self.path, 'x')
        return Cost(float(num_elements(x)), 0, tf.TensorSpec([b, channels], x.dtype))
