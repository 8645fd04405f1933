"""Building blocks of image networks: what the blocks of an AmoebaNet are built from.

Shapes: b micro-batch, h and w height and width, C input channels, F output channels.

To the partitioner each of these is one layer: a pipeline cuts between them, never inside one.
operations.py has the sequences of them that it may cut.
"""
from __future__ import annotations

from typing import Any

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, Params, field
from lingpipe.layers.base import Layer
from lingpipe.layers.batch_norm import BatchNorm
from lingpipe.layers.context import Context
from lingpipe.layers.convolution import Conv2D, output_size
from lingpipe.layers.cost import Cost, total
from lingpipe.layers.dense import Activation, Dense, activation_flops
from lingpipe.layers.dropout import DropPath
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.pooling import AvgPool2D
from lingpipe.layers.reshape import Flatten
from lingpipe.pricing import price

AUXILIARY_SIZE = 5  # Height and width, in pixels, of the windows that the auxiliary head averages.


class Norm(Params):
    """What all BatchNorms of a network have in common."""
    decay: float = field(0.9997, 'Decay of the moving averages.', least=0, most=1)
    epsilon: float = field(1e-3, 'Added to the variance.', least=0)

    def of(self, dim: int) -> BatchNorm.Params:
        """Returns the Params of a BatchNorm of `dim` channels."""
        return BatchNorm.Params(dim=dim, decay=self.decay, epsilon=self.epsilon)


class Chain(Layer):
    """Applies its children in order, each to the result of the one before.

    Subclasses make the children in __init__.
    """

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """Returns the result of the last child."""
        self._check(x)
        for name, child in self.children.items():
            x = child.fprop(theta[name], ctx, x)
        return x

    def cost(self, x: tf.TensorSpec) -> Cost:
        """The sum of the children's costs."""
        self._check(x)
        sum_of_costs = Cost(0., 0, x)
        for child in self.children.values():
            sum_of_costs += price(child, sum_of_costs.outputs)
        return sum_of_costs

    def _check(self, x: tf.Tensor | tf.TensorSpec) -> None:
        """Raises ValueError for a shape of x that a subclass does not accept."""


class ConvNorm(Chain):
    """A rectifier, a convolution without bias and BatchNorm; x [b, h, w, C] -> [b, h', w', F]."""

    class Params(Chain.Params):
        """The convolution, its BatchNorm, and whether the rectifier is there."""
        conv: Layer.Params = field(
            REQUIRED, 'The convolution, with use_bias=False and filters set.')
        batch_norm: Norm = field(Norm(), 'The BatchNorm after the convolution.')
        has_relu: bool = field(True, 'Whether the rectifier comes first.')

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        filters: int = p.conv['filters']
        self.add_child(p.conv, 'conv')
        self.add_child(p.batch_norm.of(filters), 'batch_norm')

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """x [b, h, w, C] -> [b, h', w', F]."""
        return super().fprop(theta, ctx, tf.nn.relu(x) if self.params.has_relu else x)

    def cost(self, x: tf.TensorSpec) -> Cost:
        """The rectifier, the convolution and BatchNorm."""
        return _relu_cost(x, self.params.has_relu) + super().cost(x)


def conv_norm(input_dim: int, dim: int, batch_norm: Norm, kernel_size: tuple[int, int] = (1, 1),
              strides: int | tuple[int, int] = 1, has_relu: bool = True, name: str = '',
              **fields: Any) -> ConvNorm.Params:
    """Returns ConvNorm.Params of a Conv2D.

    The layer is [b, h, w, input_dim] -> [b, h / strides, w / strides, dim].
    """
    conv = Conv2D.Params(input_dim=input_dim, filters=dim, kernel_size=kernel_size,
                         strides=strides, use_bias=False)
    return ConvNorm.Params(name=name, conv=conv, batch_norm=batch_norm, has_relu=has_relu, **fields)


class FactorizedReduction(Layer):
    """Halves the resolution; x [b, h, w, C] -> [b, h/2, w/2, F].

    One 1x1 convolution of stride 2 reads the pixels in even rows and columns, another one those in
    odd rows and columns, and each gives half of the channels. Their results are concatenated and
    normalised.
    """

    class Params(Layer.Params):
        """Channels, BatchNorm, and whether the rectifier is there."""
        input_dim: int = field(REQUIRED, 'C, the channels of the input.', least=1)
        dim: int = field(REQUIRED, 'F, the channels of the output.', least=1)
        batch_norm: Norm = field(Norm(), 'The BatchNorm of the output.')
        has_relu: bool = field(True, 'Whether a rectifier comes first.')

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        for name, filters in (('even', p.dim // 2), ('odd', p.dim - p.dim // 2)):
            conv = Conv2D.Params(input_dim=p.input_dim, filters=filters, kernel_size=(1, 1),
                                 strides=2, use_bias=False)
            self.add_child(conv, name)
        self.add_child(p.batch_norm.of(p.dim), 'batch_norm')

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """x [b, h, w, C] -> [b, h/2, w/2, F]."""
        if self.params.has_relu:
            x = tf.nn.relu(x)
        shifted = tf.pad(x[:, 1:, 1:], [[0, 0], [0, 1], [0, 1], [0, 0]])
        even = self.children['even'].fprop(theta.even, ctx, x)
        odd = self.children['odd'].fprop(theta.odd, ctx, shifted)
        both = tf.concat([even, odd], -1)  # [b, h/2, w/2, F]
        return self.children['batch_norm'].fprop(theta.batch_norm, ctx, both)

    def cost(self, x: tf.TensorSpec) -> Cost:
        """The rectifier, both convolutions and BatchNorm."""
        even = price(self.children['even'], x)
        odd = price(self.children['odd'], x)
        both = tf.TensorSpec([*even.outputs.shape[:-1], self.params.dim], x.dtype)
        norm = price(self.children['batch_norm'], both)
        return total([_relu_cost(x, self.params.has_relu), even, odd]) + norm


class Concat(Layer):
    """Concatenates the channels of values.

    The values are those of Params.reads, each [b, h, w, its channels], in the order of the keys.
    The result is [b, h, w, all their channels].
    """

    def reads(self) -> dict[str, str]:
        """Returns Params.reads: the arguments of fprop have no names of their own."""
        return dict(self.params.reads)

    def fprop(self, theta: NestedMap, ctx: Context, **values: tf.Tensor) -> tf.Tensor:
        """Returns [b, h, w, all their channels]."""
        return tf.concat([values[key] for key in sorted(values)], -1)

    def cost(self, **values: tf.TensorSpec) -> Cost:
        """Nothing. Raises ValueError if shapes differ in more than the channels."""
        first_key = min(values)
        first = values[first_key]
        for key, value in values.items():
            if value.shape[:-1] != first.shape[:-1]:
                raise ValueError(
                    f'{self.path}: {key} is {value.shape} and {first_key} is {first.shape}; all '
                    'but the channels must be equal: bring them to one size first.')
        channels = sum(value.shape[-1] for value in values.values())
        return Cost(0., 0, tf.TensorSpec([*first.shape[:-1], channels], first.dtype))


class RampedDropPath(DropPath):
    """DropPath whose rate grows linearly from 0 in the first steps of a run; x [b, ...]."""

    class Params(DropPath.Params):
        """The rate, and when it is reached."""
        ramp_steps: int = field(REQUIRED, 'Updates until the rate is `rate`.', least=1)

    params: Params

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """x with some of its examples set to 0 and the others scaled up, in training."""
        if not ctx.training:
            return x
        p = self.params
        part_of_rate = tf.minimum(1., tf.cast(ctx.step, tf.float32) / p.ramp_steps)
        keep = 1. - part_of_rate * p.rate
        shape = [x.shape[0], *[1] * (x.shape.rank - 1)]
        is_kept = tf.random.stateless_uniform(shape, ctx.seed(self.path)) < keep
        return x * tf.cast(tf.cast(is_kept, tf.float32) / keep, x.dtype)

    def cost(self, x: tf.TensorSpec) -> Cost:
        """1 operation a number and 2 an example."""
        return Cost(float(x.shape.num_elements() + 2 * x.shape[0]), 0, x)


class AuxiliaryHead(Chain):
    """A second classifier inside the network; x [b, h, w, C] -> logits [b, num_classes].

    As in Inception, it is a rectifier, a 5x5 mean, a 1x1 convolution, a convolution over all
    remaining pixels, and a dense layer. The numbers of filters are those of AmoebaNet's reference
    implementation, 0.4 of Inception's.
    """

    class Params(Chain.Params):
        """Sizes and BatchNorm."""
        input_dim: int = field(REQUIRED, 'C, the channels of the input.', least=1)
        input_size: int = field(REQUIRED, 'Height and width of the input.', least=AUXILIARY_SIZE)
        num_classes: int = field(REQUIRED, 'Number of classes.', least=1)
        batch_norm: Norm = field(Norm(), 'The BatchNorm after both convolutions.')

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        assert p.input_size >= AUXILIARY_SIZE, p.input_size
        size = output_size(p.input_size, AUXILIARY_SIZE, 3, 'valid')
        few = int(128 * 0.4)
        many = int(768 * 0.4)
        pool = AvgPool2D.Params(
            pool_size=(AUXILIARY_SIZE, AUXILIARY_SIZE), strides=3, padding='valid')
        whole = Conv2D.Params(input_dim=few, filters=many, kernel_size=(size, size),
                              padding='valid', use_bias=False)

        self.add_child(Activation.Params(activation='relu'), 'relu_0')
        self.add_child(pool, 'pool')
        self.add_child(conv_norm(p.input_dim, few, p.batch_norm, has_relu=False), 'project')
        self.add_child(ConvNorm.Params(conv=whole, batch_norm=p.batch_norm), 'whole')
        self.add_child(Activation.Params(activation='relu'), 'relu_1')
        self.add_child(Flatten.Params(), 'flatten')
        self.add_child(Dense.Params(input_dim=many, units=p.num_classes), 'dense')

    def _check(self, x: tf.Tensor | tf.TensorSpec) -> None:
        size = self.params.input_size
        if tuple(x.shape[1:3]) != (size, size):
            raise ValueError(
                f'{self.path}: x is {x.shape}, but the auxiliary head is built for {size}x{size} '
                'pixels; set auxiliary_image_size to the height and width of the images.')


def _relu_cost(x: tf.TensorSpec, has_relu: bool) -> Cost:
    return Cost(activation_flops('relu', x) if has_relu else 0., 0, x)
