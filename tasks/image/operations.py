"""The operations that a block's table names, as layers.

Shapes: x [b, h, w, C] -> [b, h / stride, w / stride, F].

    1x1                     relu, 1x1 convolution
    3x3, 1x7_7x1            relu, 1x1 to F/4 filters; the convolution(s), each after a relu;
                            relu, 1x1 to F
    separable_KxK_N         N times: relu, separable convolution
    avg_pool_KxK            mean of a window; where C is not F, a 1x1 convolution follows
    max_pool_KxK            the same with the maximum
    none                    nothing; where the size or C changes, relu, 1x1 convolution

Every convolution has BatchNorm after it, and every operation but none ends with DropPath.

An operation and a combination of two are Sequentials, so the pipeline may cut inside them: each
item in the lines above is a layer of its own. Combination i of a block reads two states and writes
state s. A cut sends only what is read beyond it:

    left/layer_0     reads a state          writes s.left
    left/layer_1     reads s.left           writes s.left, and so on
    right/layer_0    reads a state          writes s.right
    sum              reads s.left, s.right  writes s

If an operation has no layers, the sum reads its state instead.
"""
from __future__ import annotations

import re

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.convolution import SeparableConv2D
from lingpipe.layers.cost import Cost
from lingpipe.layers.dropout import DropPath
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.pooling import AvgPool2D, MaxPool2D
from lingpipe.layers.sequential import Sequential, with_layers
from lingpipe.tasks.image.blocks import (
    ConvNorm,
    FactorizedReduction,
    Norm,
    RampedDropPath,
    conv_norm,
)


class Operation(Sequential):
    """One operation of a table; its layers read Params.reads['x'] and write Params.writes."""

    class Params(Sequential.Params):
        """The operation, its channels, stride and drop path."""
        layers: tuple[Layer.Params, ...] = field((), 'Made from the fields below; leave empty.')
        kind: str = field(REQUIRED, "Its name in the tables: '1x1', 'max_pool_3x3', ...")
        input_dim: int = field(REQUIRED, 'C, the channels of the input.', least=1)
        dim: int = field(REQUIRED, 'F, the channels of the output.', least=1)
        stride: int = field(1, 'Stride: the resolution is divided by it.', least=1, most=2)
        batch_norm: Norm = field(Norm(), 'The BatchNorm after every convolution.')
        drop_path_rate: float = field(
            0., 'Probability that the result for an example becomes zero in training.',
            least=0, below=1)
        drop_path_steps: int = field(
            0, 'Updates in which that rate grows from 0; 0: it is constant.', least=0)
        is_torchgpipe: bool = field(
            False, "Whether to build torchgpipe's variant; see AmoebaNet.Params.is_torchgpipe.")

    params: Params

    def __init__(self, params: Params, path: str = ''):
        value: str | dict[str, str] = params.reads.get('x', 'x')
        layers = []
        for i, layer in enumerate(operation_layers(params)):
            layer.set(name=layer.name or f'layer_{i}', reads={'x': value}, writes=params.writes)
            layers.append(layer)
            value = params.writes
        super().__init__(with_layers(params, layers), path)


class Combination(Sequential):
    """The sum of two operations.

    They are applied to the values Params.reads['left'] and Params.reads['right']. The sum is
    written as Params.writes.
    """

    class Params(Sequential.Params):
        """Both operations."""
        layers: tuple[Layer.Params, ...] = field((), 'Made from the fields below; leave empty.')
        left: Operation.Params = field(REQUIRED, 'The operation on the left state.')
        right: Operation.Params = field(REQUIRED, 'The operation on the right state.')

    params: Params

    def __init__(self, params: Params, path: str = ''):
        layers: list[Layer.Params] = []
        summands = {}
        for side in ('left', 'right'):
            state = params.reads.get(side, side)
            result = f'{params.writes}.{side}'
            operation: Operation.Params = params[side].copy()
            operation.set(name=side, reads={'x': state}, writes=result)
            if operation_layers(operation):
                layers.append(operation)
                summands[side] = result
            else:
                summands[side] = state
        layers.append(Sum.Params(name='sum', reads=summands, writes=params.writes))
        super().__init__(with_layers(params, layers), path)


class Sum(Layer):
    """left + right, both [b, h, w, F]."""

    def fprop(self, theta: NestedMap, ctx: Context, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        """[b, h, w, F]."""
        return left + right

    def cost(self, left: tf.TensorSpec, right: tf.TensorSpec) -> Cost:
        """1 operation a number. Raises ValueError unless both have the same shape and type."""
        if left != right:
            raise ValueError(
                f'{self.path}: the left operation gives {left.shape} and the right one '
                f'{right.shape}, which cannot be added; correct the strides.')
        return Cost(float(left.shape.num_elements()), 0, left)


def operation_layers(p: Operation.Params) -> list[Layer.Params]:
    """Returns the layers of an operation; the identity has none.

    Raises:
      ValueError: there is no operation of that name, or a bottleneck has no filters.
    """
    layers = _layers_without_drop_path(p)
    if not p.drop_path_rate or p.kind == 'none':
        return layers
    if p.drop_path_steps:
        return [*layers, RampedDropPath.Params(
            name='drop_path', rate=p.drop_path_rate, ramp_steps=p.drop_path_steps)]
    return [*layers, DropPath.Params(name='drop_path', rate=p.drop_path_rate)]


def _layers_without_drop_path(p: Operation.Params) -> list[Layer.Params]:
    """Returns the layers of an operation by its name; raises ValueError for an unknown one."""
    kind = p.kind
    if kind == 'none':
        if p.stride == 1 and p.input_dim == p.dim:
            return []
        if p.is_torchgpipe and p.stride > 1:
            return [FactorizedReduction.Params(
                input_dim=p.input_dim, dim=p.dim, batch_norm=p.batch_norm)]
    if kind in ('1x1', 'none'):
        return [conv_norm(p.input_dim, p.dim, p.batch_norm, strides=p.stride)]

    if kind == '3x3':
        return _bottleneck(p, {(3, 3): (p.stride, p.stride)})
    if kind == '1x7_7x1':
        return _bottleneck(p, {(1, 7): (1, p.stride), (7, 1): (p.stride, 1)})

    if pool := re.fullmatch(r'(avg|max)_pool_(\d)x\2', kind):
        return _pool(p, pool[1], int(pool[2]))
    if separable := re.fullmatch(r'(?:dil_(\d)_)?separable_(\d)x\2_(\d)', kind):
        dilation, size, times = (int(number or 1) for number in separable.groups())
        return _separable(p, dilation, size, times)
    raise ValueError(
        f'kind={kind!r} is no operation; there are 1x1, 3x3, 1x7_7x1, avg_pool_3x3, max_pool_3x3, '
        'separable_3x3_2 (any size, any number of times; dil_2_ before it), none.')


def _bottleneck(p: Operation.Params,
                strides: dict[tuple[int, int], tuple[int, int]]) -> list[Layer.Params]:
    """Returns 1x1 to a quarter of the filters, a convolution of every kernel, and 1x1 back.

    Args:
      p: the operation.
      strides: kernel size -> strides.
    """
    few = p.dim // 4
    norm = p.batch_norm
    if few == 0:
        raise ValueError(f'dim={p.dim} of a {p.kind} leaves no filter in its bottleneck of a '
                         'quarter; use at least 4.')
    inner = [conv_norm(few, few, norm, kernel, down_and_across)
             for kernel, down_and_across in strides.items()]
    return [conv_norm(p.input_dim, few, norm), *inner, conv_norm(few, p.dim, norm)]


def _pool(p: Operation.Params, which: str, size: int) -> list[Layer.Params]:
    is_max = which == 'max' and not (p.is_torchgpipe and size == 3)
    layer = MaxPool2D if is_max else AvgPool2D
    pool = layer.Params(pool_size=(size, size), strides=p.stride)
    if p.input_dim == p.dim:
        return [pool]
    return [pool, conv_norm(p.input_dim, p.dim, p.batch_norm, has_relu=False)]


def _separable(p: Operation.Params, dilation: int, size: int, times: int) -> list[Layer.Params]:
    """Returns separable convolutions one after the other, of which the first has the stride."""
    layers: list[Layer.Params] = []
    for i in range(times):
        conv = SeparableConv2D.Params(
            input_dim=p.dim if i else p.input_dim, filters=p.dim, kernel_size=(size, size),
            strides=1 if i else p.stride, dilation=dilation, use_bias=False)
        layers.append(ConvNorm.Params(conv=conv, batch_norm=p.batch_norm))
    return layers
