"""The FLOPs of one op, by its type.

TensorFlow's own profiler knows the FLOPs of some thirty types of ops and silently counts the others
as nothing. Here, types that move data count 0, those in `_FORMULAS` by their formula, and every
other type one operation for each floating point element that it makes. An op without floating point
inputs and outputs (index arithmetic, masks, seeds) counts 0, and so do random numbers.
"""
from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

from lingpipe.layers.static_shapes import static_shape


def flops_of_one(op: tf.Operation) -> float:
    """Floating point operations of one run of an op that calls no function.

    Raises:
      ValueError: a shape is not known.
    """
    tensors = [*op.inputs, *op.outputs]
    has_floats = any(tensor.dtype.is_floating or tensor.dtype.is_complex for tensor in tensors)
    if not has_floats or op.type in _FREE or op.type.startswith('TensorList'):
        return 0.
    return float(_FORMULAS.get(op.type, _elementwise)(op))


def _size(tensor: tf.Tensor) -> int:
    return math.prod(_shape(tensor))


def _shape(tensor: tf.Tensor) -> list[int]:
    return static_shape(tensor, tensor.op.name, f'tensor {tensor.name!r}')


def _elementwise(op: tf.Operation, flops_per_output: float = 1.) -> float:
    return flops_per_output * (_size(op.outputs[0]) if op.outputs else 0)


def _per_input(op: tf.Operation, flops_per_input: float = 1.) -> float:
    return flops_per_input * _size(op.inputs[0])


def _matmul(op: tf.Operation) -> float:
    is_transposed = _any_attribute(op, 'transpose_a', 'adj_x')
    num_terms = _shape(op.inputs[0])[-2 if is_transposed else -1]
    return 2. * num_terms * _size(op.outputs[0])


def _einsum(op: tf.Operation) -> float:
    """Two operands with a sum: 2 * (product of all dimensions); without a sum, half of it.

    A sum over one operand counts 1 for each input, and a transposition 0.
    """
    equation = op.get_attr('equation').decode().replace(' ', '')
    left, right = equation.split('->')
    dims: dict[str, int] = {}
    for labels, tensor in zip(left.split(','), op.inputs, strict=True):
        shape = _shape(tensor)
        before, _, after = labels.partition('...')
        num_broadcast = len(shape) - len(before) - len(after)
        broadcast = [f'...{i - num_broadcast}' for i in range(num_broadcast)]
        for name, size in zip([*before, *broadcast, *after], shape, strict=True):
            dims[name] = max(size, dims.get(name, 1))

    has_sum = any(name not in right for name in dims if not name.startswith('...'))
    if len(op.inputs) == 1:
        return _per_input(op) if has_sum else 0.
    return math.prod(dims.values()) * (2. if has_sum else 1.)


def _conv(op: tf.Operation) -> float:
    """2 * (elements of the result) * (multiply-adds for each of them).

    Filters are [kh, kw, input channels, filters], depthwise ones [kh, kw, channels, multiplier].
    Gradients cost what the convolution costs; they read the gradient of its result.
    """
    result = op.inputs[2] if 'Backprop' in op.type else op.outputs[0]
    filters = op.outputs[0] if 'BackpropFilter' in op.type else op.inputs[1]
    num_summed_dims = 2 if op.type.startswith('Depthwise') else -1
    return 2. * _size(result) * math.prod(_shape(filters)[:num_summed_dims])


def _pool(op: tf.Operation) -> float:
    window: list[int] = op.get_attr('ksize')
    return _size(op.outputs[0]) * math.prod(window)


def _batch_norm(op: tf.Operation) -> float:
    """The mean takes 1, the variance 3; to normalise, scale and shift takes 4."""
    return _per_input(op, 8. if op.get_attr('is_training') else 4.)


def _any_attribute(op: tf.Operation, *names: str) -> bool:
    """Whether one of these attributes of the op is true; those that it lacks are not."""
    known = {attribute.name for attribute in op.op_def.attr}
    return any(op.get_attr(name) for name in names if name in known)


_FREE = frozenset("""
    Placeholder PlaceholderWithDefault Const Identity IdentityN NoOp StopGradient PreventGradient
    EnsureShape Snapshot Reshape Squeeze ExpandDims Transpose ConjugateTranspose Cast Bitcast
    ConcatV2 Concat Pack Unpack Split SplitV Slice StridedSlice Gather GatherV2 GatherNd Pad PadV2
    MirrorPad Tile BroadcastTo Fill ZerosLike OnesLike Range LinSpace OneHot Reverse ReverseV2 Roll
    Shape ShapeN Size Rank DepthToSpace SpaceToDepth BatchToSpaceND SpaceToBatchND ScatterNd
    TensorScatterUpdate DynamicPartition DynamicStitch ParallelDynamicStitch InvertPermutation
    MatrixDiagV3 MatrixBandPart MatrixDiagPartV3 StridedSliceGrad ExtractImagePatches
    StatelessRandomUniform StatelessRandomUniformV2 StatelessRandomNormal StatelessRandomNormalV2
    StatelessTruncatedNormal StatelessTruncatedNormalV2 StatelessRandomUniformInt
    StatelessRandomUniformIntV2 StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2
    StatelessMultinomial StatelessRandomGetKeyCounter StatelessRandomGetAlg
    StatelessRandomGetKeyCounterAlg
    """.split())

_MATMULS = ('MatMul', 'BatchMatMul', 'BatchMatMulV2', 'BatchMatMulV3')
_CONVS = """
    Conv2D Conv2DBackpropInput Conv2DBackpropFilter
    Conv3D Conv3DBackpropInputV2 Conv3DBackpropFilterV2
    DepthwiseConv2dNative DepthwiseConv2dNativeBackpropInput DepthwiseConv2dNativeBackpropFilter
    """.split()
_POOLS = ('MaxPool', 'AvgPool', 'MaxPool3D', 'AvgPool3D')
_BATCH_NORMS = ('FusedBatchNorm', 'FusedBatchNormV2', 'FusedBatchNormV3')
_REDUCTIONS = """
    Sum Mean Max Min Prod All Any ArgMax ArgMin Cumsum Cumprod InTopKV2 TopKV2 SegmentSum
    SegmentSumV2 UnsortedSegmentSum UnsortedSegmentMax BiasAddGrad
    """.split()
_LOSSES = ('SoftmaxCrossEntropyWithLogits', 'SparseSoftmaxCrossEntropyWithLogits')

_FORMULAS: dict[str, Callable[[tf.Operation], float]] = {
    **dict.fromkeys(_MATMULS, _matmul),
    'Einsum': _einsum,
    **dict.fromkeys(_CONVS, _conv),
    **dict.fromkeys(_POOLS, _pool),
    **dict.fromkeys(_BATCH_NORMS, _batch_norm),
    **dict.fromkeys(_REDUCTIONS, _per_input),
    **dict.fromkeys(['L2Loss', 'EuclideanNorm'], lambda op: _per_input(op, 2.)),
    'SquaredDifference': lambda op: _elementwise(op, 2.),
    'AddN': lambda op: _elementwise(op, len(op.inputs) - 1),
    # Max, subtract, exp, sum, divide or subtract; with the loss, also a product and a sum.
    **dict.fromkeys(['Softmax', 'LogSoftmax'], lambda op: _per_input(op, 5.)),
    **dict.fromkeys(_LOSSES, lambda op: _per_input(op, 7.)),
}
