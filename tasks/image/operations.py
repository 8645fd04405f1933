"""Operations: what a cell's table names, as layers; x [b, h, w, C] -> [b, h / stride, w / stride, F].

    1x1                     relu, 1x1 convolution
    3x3, 1x7_7x1            relu, 1x1 to F/4 filters; the convolution(s), each after a relu; relu, 1x1 to F
    separable_KxK_N         N times: relu, separable convolution
    avg_pool_KxK            mean of a window; where C is not F, a 1x1 convolution follows
    max_pool_KxK            the same with the maximum
    none                    nothing; where the size or C changes, relu, 1x1 convolution

Every convolution has BatchNorm after it, and every operation but none ends with DropPath.
"""
from __future__ import annotations

import re
from typing import Any

import tensorflow as tf

from lingpipe.cost import Cost
from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layer import Layer
from lingpipe.layers.convolution import SeparableConv2D
from lingpipe.layers.dropout import DropPath
from lingpipe.layers.pooling import AvgPool2D, MaxPool2D
from lingpipe.nested import NestedMap
from tasks.image.blocks import Chain, ConvNorm, FactorizedReduction, Norm, RampedDropPath, conv_norm


class Operation(Chain):
    """One operation of a table."""

    class Params(Chain.Params):
        kind: str = field(REQUIRED, "Its name in the tables: '1x1', 'max_pool_3x3', ...")
        input_dim: int = field(REQUIRED, 'C, the channels of the input.')
        dim: int = field(REQUIRED, 'F, the channels of the output.')
        stride: int = field(1, 'Pixels of the input from one pixel of the output to the next: 1 or 2.')
        batch_norm: Norm = field(Norm(), 'Of every convolution.')
        drop_path_rate: float = field(0., 'Probability that the result for an example becomes zero in training.')
        drop_path_steps: int = field(0, 'Updates in which that rate grows from 0; 0: it is constant.')
        is_torchgpipe: bool = field(False, "As torchgpipe's benchmark has it: see AmoebaNet.Params.is_torchgpipe.")

    def __init__(self, params: Any, path: str = ''):
        super().__init__(params, path)
        p = self.params
        layers = _layers(p)
        if p.drop_path_rate and p.kind != 'none':
            drop_path: Layer.Params = DropPath.Params(rate=p.drop_path_rate)
            if p.drop_path_steps:
                drop_path = RampedDropPath.Params(rate=p.drop_path_rate, ramp_steps=p.drop_path_steps)
            layers.append(drop_path.set(name='drop_path'))
        for i, layer in enumerate(layers):
            self.add_child(layer, layer.name or f'layer_{i}')


class Combination(Layer):
    """The sum of an operation on one state and an operation on another; left and right [b, h, w, C] -> [b, h', w', F]."""

    class Params(Layer.Params):
        left: Operation.Params = field(REQUIRED, 'What is done to the left state.')
        right: Operation.Params = field(REQUIRED, 'What is done to the right state.')

    def __init__(self, params: Any, path: str = ''):
        super().__init__(params, path)
        self.left = self.add_child(self.params.left, 'left')
        self.right = self.add_child(self.params.right, 'right')

    def fprop(self, theta: NestedMap, ctx: Any, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        return self.left.fprop(theta.left, ctx, left) + self.right.fprop(theta.right, ctx, right)

    def cost(self, left: tf.TensorSpec, right: tf.TensorSpec) -> Cost:
        left_cost, right_cost = self.left.cost(left), self.right.cost(right)
        y = left_cost.outputs
        if y != right_cost.outputs:
            raise ValueError(f'{self.path}: {self.params.left.kind} gives {y.shape} and {self.params.right.kind} '
                             f'{right_cost.outputs.shape}, which cannot be added; correct the strides.')
        return left_cost + right_cost + Cost(float(y.shape.num_elements()), 0, 0., y)


def _layers(p: Any) -> list[Layer.Params]:
    """The layers of an operation, without DropPath."""
    kind, norm = p.kind, p.batch_norm
    if kind == 'none':
        if p.stride == 1 and p.input_dim == p.dim:
            return []
        if p.is_torchgpipe and p.stride > 1:
            return [FactorizedReduction.Params(input_dim=p.input_dim, dim=p.dim, batch_norm=norm)]
    if kind in ('1x1', 'none'):
        return [conv_norm(p.input_dim, p.dim, norm, strides=p.stride)]
    if kind in ('3x3', '1x7_7x1'):
        return _bottleneck(p, [(3, 3)] if kind == '3x3' else [(1, 7), (7, 1)])
    if found := re.fullmatch(r'(avg|max)_pool_(\d)x\2', kind):
        return _pool(p, found[1], int(found[2]))
    if found := re.fullmatch(r'(?:dil_(\d)_)?separable_(\d)x\2_(\d)', kind):
        return _separable(p, dilation=int(found[1] or 1), size=int(found[2]), times=int(found[3]))
    raise ValueError(f"kind={kind!r} is no operation; there are 1x1, 3x3, 1x7_7x1, avg_pool_3x3, max_pool_3x3, separable_3x3_2 (any "
                     "size, any number of times; dil_2_ before it), none.")


def _bottleneck(p: Any, kernels: list[tuple[int, int]]) -> list[Layer.Params]:
    few = p.dim // 4
    if few == 0:
        raise ValueError(f'dim={p.dim} of a {p.kind} leaves no filter in its bottleneck of a quarter; use at least 4.')
    norm = p.batch_norm
    layers = [conv_norm(p.input_dim, few, norm)]
    for i, kernel in enumerate(kernels):
        layers.append(conv_norm(few, few, norm, kernel, strides=p.stride if i == len(kernels) - 1 else 1))
    return [*layers, conv_norm(few, p.dim, norm)]


def _pool(p: Any, which: str, size: int) -> list[Layer.Params]:
    is_max = which == 'max' and not (p.is_torchgpipe and size == 3)
    pool = (MaxPool2D if is_max else AvgPool2D).Params(pool_size=(size, size), strides=p.stride)
    return [pool] if p.input_dim == p.dim else [pool, conv_norm(p.input_dim, p.dim, p.batch_norm, has_relu=False)]


def _separable(p: Any, dilation: int, size: int, times: int) -> list[Layer.Params]:
    layers: list[Layer.Params] = []
    for i in range(times):
        conv = SeparableConv2D.Params(input_dim=p.dim if i else p.input_dim, filters=p.dim, kernel_size=(size, size),
                                      strides=1 if i else p.stride, dilation=dilation, use_bias=False)
        layers.append(ConvNorm.Params(conv=conv, batch_norm=p.batch_norm))
    return layers
