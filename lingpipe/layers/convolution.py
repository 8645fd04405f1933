"""Conv2D, DepthwiseConv2D and SeparableConv2D on images [b, height, width, channels].

A dilated convolution runs as dense ones on the phases of the image (tf.nn.convolution,
space_to_batch), because TensorFlow's CPU kernels have no gradient for dilation. The phases are
padded to one size, and the cost counts that.
"""
from __future__ import annotations

import math

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.layers.dense import activation_flops, activation_fn
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.projection import add_bias
from lingpipe.layers.shapes import check_last_dim
from lingpipe.layers.static_shapes import static_shape
from lingpipe.layers.weight import initializer_named


class _Conv(Layer):
    """What the convolutions share."""

    class Params(Layer.Params):
        """Kernel, strides, padding, bias, activation."""
        input_dim: int = field(REQUIRED, 'Channels of the input.', least=1)
        kernel_size: tuple[int, int] = field((3, 3), 'Height and width of the kernel.', least=1)
        strides: int | tuple[int, int] = field(1, 'Pixels from one output to the next, both ways, '
                                                  'or down and across.', least=1)
        padding: str = field('same', "'same': output size = input size / strides, rounded up; "
                                     "'valid': whole kernels only.")
        dilation: int = field(1, 'Pixels from one kernel element to the next, both ways.', least=1)
        use_bias: bool = field(True, 'Whether a bias is added.')
        activation: str = field('linear', "Name in keras.activations, or 'gelu_tanh'.")
        kernel_initializer: str = field('he_normal', 'Name of the initializer of the kernel: '
                                                     "Keras', or 'he_normal_fan_out'.")

        def check(self) -> None:
            """Raises ValueError for an unknown name, or strides together with dilation."""
            check_padding(self.padding)
            activation_fn(self.activation)
            initializer_named(self.kernel_initializer)
            if max(pair(self.strides)) > 1 and self.dilation > 1:
                raise ValueError(f'strides={self.strides} and dilation={self.dilation}: only one '
                                 'of them can be above 1; set the other to 1.')

    params: Params

    def _biased(self, theta: NestedMap, y: tf.Tensor) -> tf.Tensor:
        """activation(y + b)."""
        if self.params.use_bias:
            y = add_bias(y, theta.b)
        return activation_fn(self.params.activation)(y)

    def _cost(self, x: tf.TensorSpec, channels: int, flops_per_value: float,
              flops_per_output: float = 0.) -> Cost:
        """The cost of the layer with bias and activation.

        Args:
          x: the input.
          channels: those of the output.
          flops_per_value: FLOPs for each pixel that the (first) convolution computes.
          flops_per_output: FLOPs for each element of the output.
        """
        p = self.params
        check_last_dim(x, p.input_dim, self.path)
        b, height, width, _ = static_shape(x, self.path, 'x')
        sizes = [output_size(size, kernel, stride, p.padding, p.dilation) for size, kernel, stride
                 in zip((height, width), p.kernel_size, pair(p.strides), strict=True)]
        y = tf.TensorSpec([b, *sizes, channels], x.dtype)

        computed_sizes = self._computed_sizes((height, width)) if p.dilation > 1 else sizes
        flops = b * math.prod(computed_sizes) * flops_per_value
        flops += math.prod(y.shape) * (flops_per_output + p.use_bias)
        return Cost(flops + activation_flops(p.activation, y), self.num_weights, y)

    def _computed_sizes(self, sizes: tuple[int, int]) -> list[int]:
        """The height and width that all phases of a dilated convolution compute together."""
        p = self.params
        phases = [math.ceil(size / p.dilation) for size in sizes]
        if p.padding == 'same':
            return [size * p.dilation for size in phases]
        return [(size - kernel + 1) * p.dilation
                for size, kernel in zip(phases, p.kernel_size, strict=True)]


class Conv2D(_Conv):
    """Convolution, bias, activation; x [b, h, w, input_dim] -> [b, h', w', filters]."""

    is_traced_once = True

    class Params(_Conv.Params):
        """Those of a convolution, and the number of filters."""
        filters: int = field(REQUIRED, 'Channels of the output.', least=1)

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        self.add_weight('w', [*p.kernel_size, p.input_dim, p.filters], p.kernel_initializer)
        if p.use_bias:
            self.add_weight('b', [p.filters], 'zeros')

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """Returns the convolution of x [b, height, width, input_dim], with the bias if any."""
        p = self.params
        check_last_dim(x, p.input_dim, self.path)
        w, padding = tf.cast(theta.w, x.dtype), p.padding.upper()
        if p.dilation > 1:
            y = tf.nn.convolution(x, w, padding=padding, dilations=p.dilation)
        else:
            y = tf.nn.conv2d(x, w, p.strides, padding)
        return self._biased(theta, y)

    def cost(self, x: tf.TensorSpec) -> Cost:
        p = self.params
        return self._cost(x, p.filters, 2. * math.prod(p.kernel_size) * p.input_dim * p.filters)


class _Depthwise(_Conv):
    """What convolutions with a kernel for each channel have in common."""

    class Params(_Conv.Params):
        """Those of a convolution; strides are the same down and across."""
        multiplier: int = field(1, 'Outputs of each channel in the depthwise part.', least=1)

        def check(self) -> None:
            """Raises ValueError for strides that differ, for which TensorFlow has no kernel."""
            super().check()
            if len(set(pair(self.strides))) > 1:
                raise ValueError(f'strides={self.strides} of a depthwise convolution: '
                                 "TensorFlow's kernels need the same number down and across; use "
                                 f'strides={max(pair(self.strides))}, or a Conv2D.')

    params: Params

    def _depthwise(self, x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
        """The depthwise convolution alone."""
        p = self.params
        return tf.nn.depthwise_conv2d(x, tf.cast(w, x.dtype), [1, *pair(p.strides), 1],
                                      p.padding.upper(), dilations=[p.dilation, p.dilation])


class DepthwiseConv2D(_Depthwise):
    """A kernel for each channel; x [b, h, w, C] -> [b, h', w', C * multiplier]."""

    is_traced_once = True

    def __init__(self, params: _Depthwise.Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        self.add_weight('w', [*p.kernel_size, p.input_dim, p.multiplier], p.kernel_initializer)
        if p.use_bias:
            self.add_weight('b', [p.input_dim * p.multiplier], 'zeros')

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        check_last_dim(x, self.params.input_dim, self.path)
        return self._biased(theta, self._depthwise(x, theta.w))

    def cost(self, x: tf.TensorSpec) -> Cost:
        p = self.params
        channels = p.input_dim * p.multiplier
        return self._cost(x, channels, 2. * math.prod(p.kernel_size) * channels)


class SeparableConv2D(_Depthwise):
    """A depthwise and then a 1x1 convolution; x [b, h, w, C] -> [b, h', w', filters].

    There is no activation between them.
    """

    is_traced_once = True

    class Params(_Depthwise.Params):
        """Those of a depthwise convolution, and the number of filters."""
        filters: int = field(REQUIRED, 'Channels of the output.', least=1)

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        channels = p.input_dim * p.multiplier
        self.add_weight('w_depthwise', [*p.kernel_size, p.input_dim, p.multiplier],
                        p.kernel_initializer)
        self.add_weight('w_pointwise', [1, 1, channels, p.filters], p.kernel_initializer)
        if p.use_bias:
            self.add_weight('b', [p.filters], 'zeros')

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        check_last_dim(x, self.params.input_dim, self.path)
        y = self._depthwise(x, theta.w_depthwise)
        y = tf.nn.conv2d(y, tf.cast(theta.w_pointwise, x.dtype), 1, 'VALID')
        return self._biased(theta, y)

    def cost(self, x: tf.TensorSpec) -> Cost:
        p = self.params
        channels = p.input_dim * p.multiplier
        depthwise_flops = 2. * math.prod(p.kernel_size) * channels
        return self._cost(x, p.filters, depthwise_flops, 2. * channels)


def pair(value: int | tuple[int, int]) -> tuple[int, int]:
    """(down, across), given either or one number for both."""
    return (value, value) if isinstance(value, int) else value


def check_padding(padding: str) -> None:
    """Raises ValueError unless it is 'same' or 'valid'."""
    if padding not in ('same', 'valid'):
        raise ValueError(f"padding={padding!r} is unknown; write 'same' or 'valid'.")


def output_size(size: int, kernel: int, stride: int, padding: str, dilation: int = 1) -> int:
    """The height or width of the result of a convolution or pooling, given that of its input."""
    if padding == 'same':
        return math.ceil(size / stride)
    return math.ceil((size - (kernel - 1) * dilation) / stride)
