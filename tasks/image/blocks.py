"""Blocks: what the cells of an AmoebaNet are built from.

Shapes: b micro-batch, h and w height and width, C input channels, F output channels.

A block is one layer to the partitioner, which cuts between blocks and never inside one; operations.py has what it may cut.
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

AUXILIARY_SIZE = 5  # pixels that the auxiliary head averages over, each way


class Norm(Params):
    """What all BatchNorms of a network have in common."""
    decay: float = field(0.9997, 'Decay of the moving averages.', least=0, most=1)
    epsilon: float = field(1e-3, 'Added to the variance.', least=0)

    def of(self, dim: int) -> BatchNorm.Params:
        """A BatchNorm of `dim` channels."""
        return BatchNorm.Params(dim=dim, decay=self.decay, epsilon=self.epsilon)


def with_layers(params: Any, layers: list[Layer.Params]) -> Any:
    """A copy of the Params of a Sequential with the layers that its other fields stand for."""
    if params.layers:
        raise ValueError(f'{type(params).__qualname__}.layers is made from the other fields; leave it empty.')
    return params.copy().set(layers=tuple(layers))


class Chain(Layer):
    """Its children in order, each on the result of the one before; subclasses make them in __init__."""

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        self._check(x)
        for name, child in self.children.items():
            x = child.fprop(theta[name], ctx, x)
        return x

    def cost(self, x: tf.TensorSpec) -> Cost:
        self._check(x)
        sum_of_costs = Cost(0., 0, x)
        for child in self.children.values():
            sum_of_costs += price(child, sum_of_costs.outputs)
        return sum_of_costs

    def _check(self, x: Any) -> None:
        """Raises ValueError for a shape of x that a subclass cannot take; any may come here."""


class ConvNorm(Chain):
    """A rectifier, a convolution without bias and BatchNorm; x [b, h, w, C] -> [b, h', w', F]."""

    class Params(Chain.Params):
        conv: Layer.Params = field(REQUIRED, 'The convolution, with use_bias=False and filters set.')
        batch_norm: Norm = field(Norm(), 'Of the result.')
        has_relu: bool = field(True, 'Whether the rectifier comes first.')

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        self.add_child(p.conv, 'conv')
        self.add_child(p.batch_norm.of(p.conv['filters']), 'batch_norm')

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        return super().fprop(theta, ctx, tf.nn.relu(x) if self.params.has_relu else x)

    def cost(self, x: tf.TensorSpec) -> Cost:
        return _relu_cost(x, self.params.has_relu) + super().cost(x)


def conv_norm(input_dim: int, dim: int, batch_norm: Norm, kernel_size: tuple[int, int] = (1, 1),
              strides: int | tuple[int, int] = 1, has_relu: bool = True, name: str = '', **fields: Any) -> ConvNorm.Params:
    """ConvNorm.Params of a Conv2D [b, h, w, input_dim] -> [b, h / strides, w / strides, dim]."""
    conv = Conv2D.Params(input_dim=input_dim, filters=dim, kernel_size=kernel_size, strides=strides, use_bias=False)
    return ConvNorm.Params(name=name, conv=conv, batch_norm=batch_norm, has_relu=has_relu, **fields)


class FactorizedReduction(Layer):
    """Half the resolution, with every pixel used at least by one half of the channels; x [b, h, w, C] -> [b, h/2, w/2, F].

    One 1x1 convolution of stride 2 reads the even pixels, another the odd ones; their results are concatenated and normalised.
    """

    class Params(Layer.Params):
        input_dim: int = field(REQUIRED, 'C, the channels of the input.', least=1)
        dim: int = field(REQUIRED, 'F, the channels of the output.', least=1)
        batch_norm: Norm = field(Norm(), 'Of the result.')
        has_relu: bool = field(True, 'Whether a rectifier comes first.')

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        for name, filters in (('even', p.dim // 2), ('odd', p.dim - p.dim // 2)):
            self.add_child(Conv2D.Params(input_dim=p.input_dim, filters=filters, kernel_size=(1, 1), strides=2, use_bias=False), name)
        self.add_child(p.batch_norm.of(p.dim), 'batch_norm')

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        x = tf.nn.relu(x) if self.params.has_relu else x
        odd = tf.pad(x[:, 1:, 1:], [[0, 0], [0, 1], [0, 1], [0, 0]])
        halves = [self.children['even'].fprop(theta.even, ctx, x), self.children['odd'].fprop(theta.odd, ctx, odd)]
        return self.children['batch_norm'].fprop(theta.batch_norm, ctx, tf.concat(halves, -1))  # [b, h/2, w/2, F]

    def cost(self, x: tf.TensorSpec) -> Cost:
        even, odd = price(self.children['even'], x), price(self.children['odd'], x)
        y = tf.TensorSpec([*even.outputs.shape[:-1], self.params.dim], x.dtype)
        return total([_relu_cost(x, self.params.has_relu), even, odd]) + price(self.children['batch_norm'], y)


class Concat(Layer):
    """The values of Params.reads, each [b, h, w, its channels], in the order of its keys -> [b, h, w, all their channels]."""

    def reads(self) -> dict[str, str]:
        return dict(self.params.reads)

    def fprop(self, theta: NestedMap, ctx: Context, **values: tf.Tensor) -> tf.Tensor:
        return tf.concat([values[key] for key in sorted(values)], -1)

    def cost(self, **values: tf.TensorSpec) -> Cost:
        """Raises ValueError unless all but the channels are equal."""
        first = values[min(values)]
        for key, value in values.items():
            if value.shape[:-1] != first.shape[:-1]:
                raise ValueError(f'{self.path}: {key} is {value.shape} and {min(values)} is {first.shape}; all but the channels must be '
                                 f'equal: bring them to one size first.')
        channels = sum(value.shape[-1] for value in values.values())
        return Cost(0., 0, tf.TensorSpec([*first.shape[:-1], channels], first.dtype))


class RampedDropPath(DropPath):
    """DropPath whose rate grows linearly from 0 in the first steps of the training; x [b, ...]."""

    class Params(DropPath.Params):
        ramp_steps: int = field(REQUIRED, 'Updates until the rate is `rate`.', least=1)

    params: Params

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        if not ctx.training:
            return x
        part = tf.minimum(1., tf.cast(ctx.step, tf.float32) / self.params.ramp_steps)
        keep = 1. - part * self.params.rate
        is_kept = tf.random.stateless_uniform([x.shape[0], *[1] * (x.shape.rank - 1)], ctx.seed(self.path)) < keep
        return x * tf.cast(tf.cast(is_kept, tf.float32) / keep, x.dtype)

    def cost(self, x: tf.TensorSpec) -> Cost:
        return Cost(float(x.shape.num_elements() + 2 * x.shape[0]), 0, x)


class AuxiliaryHead(Chain):
    """A second classifier inside the network; x [b, h, w, C] -> logits [b, num_classes].

    As in Inception: rectifier, 5x5 mean, 1x1 convolution, one convolution over all that is left, dense. The numbers of
    filters are those of the reference build, 0.4 of Inception's.
    """

    class Params(Chain.Params):
        input_dim: int = field(REQUIRED, 'C, the channels of the input.', least=1)
        input_size: int = field(REQUIRED, 'h = w of the input.', least=AUXILIARY_SIZE)
        num_classes: int = field(REQUIRED, 'Number of classes.', least=1)
        batch_norm: Norm = field(Norm(), 'After both convolutions.')

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        assert p.input_size >= AUXILIARY_SIZE, p.input_size
        size = output_size(p.input_size, AUXILIARY_SIZE, 3, 'valid')
        few, many = int(128 * 0.4), int(768 * 0.4)
        self.add_child(Activation.Params(activation='relu'), 'relu_0')
        self.add_child(AvgPool2D.Params(pool_size=(AUXILIARY_SIZE, AUXILIARY_SIZE), strides=3, padding='valid'), 'pool')
        self.add_child(conv_norm(p.input_dim, few, p.batch_norm, has_relu=False), 'project')
        conv = Conv2D.Params(input_dim=few, filters=many, kernel_size=(size, size), padding='valid', use_bias=False)
        self.add_child(ConvNorm.Params(conv=conv, batch_norm=p.batch_norm), 'whole')
        self.add_child(Activation.Params(activation='relu'), 'relu_1')
        self.add_child(Flatten.Params(), 'flatten')
        self.add_child(Dense.Params(input_dim=many, units=p.num_classes), 'dense')

    def _check(self, x: Any) -> None:
        size = self.params.input_size
        if tuple(x.shape[1:3]) != (size, size):
            raise ValueError(f'{self.path}: x is {x.shape}, but the auxiliary head is built for {size}x{size} pixels; set '
                             'auxiliary_image_size to the height and width of the images.')


def _relu_cost(x: tf.TensorSpec, has_relu: bool) -> Cost:
    return Cost(activation_flops('relu', x) if has_relu else 0., 0, x)
