"""The FLOPs of one op, by its type.

TensorFlow's own profiler knows the FLOPs of some thirty op types and takes the rest for nothing, silently. Here all types
that move data count 0, those of `_FORMULAS` by their formula, and every other one operation for each floating point element
it makes. An op without floating point inputs and outputs (index arithmetic, masks, seeds) counts 0; so do random numbers.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lingpipe.layers.static_shapes import static_shape


def flops_of_one(op: Any) -> float:
    """Floating point operations of one run of an op that runs no function.

    Raises:
      ValueError: a shape is not known.
    """
    has_floats = any(t.dtype.is_floating or t.dtype.is_complex for t in [*op.inputs, *op.outputs])
    if not has_floats or op.type in _FREE or op.type.startswith('TensorList'):
        return 0.
    return float(_FORMULAS.get(op.type, _elementwise)(op))


def _size(tensor: tf.Tensor) -> int:
    return math.prod(_shape(tensor))


def _shape(tensor: tf.Tensor) -> list[int]:
    return static_shape(tensor, tensor.op.name, f'tensor {tensor.name!r}')


def _elementwise(op: Any, each: float = 1.) -> float:
    return each * (_size(op.outputs[0]) if op.outputs else 0)


def _per_input(op: Any, each: float = 1.) -> float:
    return each * _size(op.inputs[0])


def _matmul(op: Any) -> float:
    summed = _shape(op.inputs[0])[-2 if _attr(op, 'transpose_a', 'adj_x') else -1]
    return 2. * summed * _size(op.outputs[0])


def _einsum(op: Any) -> float:
    """2 * (product of all dimensions) for two operands with a sum, 1 for a product without, inputs for a sum of one."""
    equation = op.get_attr('equation').decode().replace(' ', '')
    left, right = equation.split('->')
    dims: dict[str, int] = {}
    for labels, tensor in zip(left.split(','), op.inputs, strict=True):
        shape = _shape(tensor)
        before, _, after = labels.partition('...')
        ellipsis = len(shape) - len(before) - len(after)
        names = [*before, *[f'...{i - ellipsis}' for i in range(ellipsis)], *after]
        for name, n in zip(names, shape, strict=True):
            dims[name] = max(n, dims.get(name, 1))
    has_sum = any(name not in right for name in dims if not name.startswith('...'))
    if len(op.inputs) == 1:
        return _per_input(op) if has_sum else 0.
    return math.prod(dims.values()) * (2. if has_sum else 1.)


def _conv(op: Any) -> float:
    """2 * (elements of the result) * (multiply-adds of each). Filters are [kh, kw, input channels, filters], depthwise ones
    [kh, kw, channels, multiplier]. Gradients cost what the convolution does; they read the gradient of its result."""
    result = op.inputs[2] if 'Backprop' in op.type else op.outputs[0]
    filters = op.outputs[0] if 'BackpropFilter' in op.type else op.inputs[1]
    return 2. * _size(result) * math.prod(_shape(filters)[:2 if op.type.startswith('Depthwise') else -1])


def _pool(op: Any) -> float:
    return _size(op.outputs[0]) * math.prod(op.get_attr('ksize'))


def _batch_norm(op: Any) -> float:
    return _per_input(op, 8. if op.get_attr('is_training') else 4.)  # mean 1, variance 3; normalise, scale, shift 4


def _attr(op: Any, *names: str) -> bool:
    known = {attr.name for attr in op.op_def.attr}
    return any(op.get_attr(name) for name in names if name in known)


_FREE = frozenset("""
    Placeholder PlaceholderWithDefault Const Identity IdentityN NoOp StopGradient PreventGradient EnsureShape Snapshot Reshape
    Squeeze ExpandDims Transpose ConjugateTranspose Cast Bitcast ConcatV2 Concat Pack Unpack Split SplitV Slice StridedSlice
    Gather GatherV2 GatherNd Pad PadV2 MirrorPad Tile BroadcastTo Fill ZerosLike OnesLike Range LinSpace OneHot Reverse ReverseV2
    Roll Shape ShapeN Size Rank DepthToSpace SpaceToDepth BatchToSpaceND SpaceToBatchND ScatterNd TensorScatterUpdate
    DynamicPartition DynamicStitch ParallelDynamicStitch InvertPermutation MatrixDiagV3 MatrixBandPart MatrixDiagPartV3
    StridedSliceGrad ExtractImagePatches StatelessRandomUniform StatelessRandomUniformV2 StatelessRandomNormal
    StatelessRandomNormalV2 StatelessTruncatedNormal StatelessTruncatedNormalV2 StatelessRandomUniformInt
    StatelessRandomUniformIntV2 StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatelessMultinomial
    StatelessRandomGetKeyCounter StatelessRandomGetAlg StatelessRandomGetKeyCounterAlg
    """.split())

_FORMULAS: dict[str, Callable[[Any], float]] = {
    'MatMul': _matmul, 'BatchMatMul': _matmul, 'BatchMatMulV2': _matmul, 'BatchMatMulV3': _matmul, 'Einsum': _einsum,
    **dict.fromkeys('Conv2D Conv2DBackpropInput Conv2DBackpropFilter Conv3D Conv3DBackpropInputV2 Conv3DBackpropFilterV2 '
                    'DepthwiseConv2dNative DepthwiseConv2dNativeBackpropInput DepthwiseConv2dNativeBackpropFilter'.split(), _conv),
    'MaxPool': _pool, 'AvgPool': _pool, 'MaxPool3D': _pool, 'AvgPool3D': _pool,
    'FusedBatchNorm': _batch_norm, 'FusedBatchNormV2': _batch_norm, 'FusedBatchNormV3': _batch_norm,
    **dict.fromkeys('Sum Mean Max Min Prod All Any ArgMax ArgMin Cumsum Cumprod InTopKV2 TopKV2 SegmentSum SegmentSumV2 '
                    'UnsortedSegmentSum UnsortedSegmentMax BiasAddGrad'.split(), _per_input),
    **dict.fromkeys(['L2Loss', 'EuclideanNorm'], lambda op: _per_input(op, 2.)),
    'SquaredDifference': lambda op: _elementwise(op, 2.),
    'AddN': lambda op: _elementwise(op, len(op.inputs) - 1),
    # max, subtract, exp, sum, divide or subtract; with the loss, a product and a sum more.
    **dict.fromkeys(['Softmax', 'LogSoftmax'], lambda op: _per_input(op, 5.)),
    **dict.fromkeys(['SoftmaxCrossEntropyWithLogits', 'SparseSoftmaxCrossEntropyWithLogits'], lambda op: _per_input(op, 7.)),
}
