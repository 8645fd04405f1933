"""Tracing: what a layer's fprop costs, found out by building its graph on abstract shapes; no variable, no data.

    traced_cost(layer, tf.TensorSpec([8, 64, 256]))  ->  Cost(flops, num_weights, activation_bytes, outputs)

TensorFlow's own profiler knows the FLOPs of some thirty op types and takes the rest for nothing, silently. Here all types
that move data count 0, those of `_FORMULAS` by their formula, and every other one operation for each floating point element
it makes. An op without floating point inputs and outputs (index arithmetic, masks, seeds) counts 0; so do random numbers.

The activations kept for backward are not guessed either: the gradient is built behind the forward graph, and what it reads of
the forward graph is what has to be kept. Views (a reshape) are the tensor that they view.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from lingpipe.context import Context, Emissions
from lingpipe.cost import Cost
from lingpipe.nested import NestedMap, leaves, map_leaves

if TYPE_CHECKING:
    from lingpipe.layer import Layer

# Shapes.


def static_shape(value: Any, path: str, what: str) -> list[int]:
    """The dimensions of a tensor or TensorSpec.

    Raises:
      ValueError: one is unknown; says that `what` of the layer `path` needs it, and how to give it.
    """
    shape = tf.TensorShape(value.shape)
    if not shape.is_fully_defined():
        found = 'of unknown rank' if shape.rank is None else '[' + ', '.join('?' if n is None else str(n) for n in shape) + ']'
        raise ValueError(f'{path}: {what} is {found}, but every dimension must be known before anything runs; give the shape of one '
                         'micro-batch: batch the input with a fixed size (drop_remainder=True) and pad the rest.')
    return [int(n) for n in shape.as_list()]


def num_elements(value: Any) -> int:
    """The number of scalars of a tensor or TensorSpec; its shape must be known."""
    assert tf.TensorShape(value.shape).is_fully_defined(), value
    return math.prod(value.shape)


def num_bytes(value: Any) -> int:
    """The bytes of a tensor or TensorSpec; its shape must be known."""
    return num_elements(value) * value.dtype.size


def as_spec(value: Any) -> tf.TensorSpec:
    """The TensorSpec of a tensor or of anything with a shape and a dtype."""
    return tf.TensorSpec(tf.TensorShape(value.shape), tf.as_dtype(value.dtype))


# Tracing.


@dataclasses.dataclass(frozen=True)
class Trace:
    """The graph of one call of fprop.

    Attributes:
      graph: a function's graph; all its inputs are placeholders.
      theta: placeholders of the weights.
      inputs: (args, kwargs) of fprop with placeholders in place of specs, as one nested value.
      position: placeholders of the step and the micro-batch.
      outputs: what fprop returned.
      emissions: what it emitted.
    """
    graph: Any
    theta: NestedMap
    inputs: dict[str, Any]
    position: tuple[tf.Tensor, tf.Tensor]
    outputs: Any
    emissions: Emissions


def trace(layer: Layer, *args: Any, training: bool = True, **kwargs: Any) -> Trace:
    """Builds the graph of layer.fprop on placeholders; args and kwargs are nested tf.TensorSpec, without theta and ctx."""
    graph = tf.__internal__.FuncGraph('trace')
    with graph.as_default():
        theta = layer.theta({w.path: tf.compat.v1.placeholder(w.dtype, w.shape) for w in layer.weights()})
        inputs = map_leaves(_placeholder, {**{str(i): a for i, a in enumerate(args)}, **kwargs})
        position = tf.compat.v1.placeholder(tf.int64, []), tf.compat.v1.placeholder(tf.int64, [])
        ctx = Context(training, 0, *position)
        outputs = layer.fprop(theta, ctx, *[inputs[str(i)] for i in range(len(args))], **{name: inputs[name] for name in kwargs})
    return Trace(graph, theta, inputs, position, outputs, ctx.emissions)


def traced_cost(layer: Layer, *args: Any, **kwargs: Any) -> Cost:
    """The cost of layer.fprop in training, counted in its graph; args and kwargs are nested tf.TensorSpec.

    activation_bytes are the tensors that the gradient reads of the forward graph, without inputs, weights, and what is a
    function of weights alone. Tracing takes from milliseconds to seconds: a layer that is used a thousand times should have
    a `cost` of its own.

    Raises:
      ValueError: an input or a tensor inside the layer has a shape that is not known.
    """
    for name, value in {**{f'input {i}': a for i, a in enumerate(args)}, **kwargs}.items():
        for spec in leaves(value):
            static_shape(spec, layer.path, name)
    made = trace(layer, *args, **kwargs)
    try:
        flops = count_flops(made.graph)
    except ValueError as error:
        raise ValueError(f'{layer.path}: {error}') from error
    return Cost(flops, layer.num_weights, _kept_bytes(made), map_leaves(as_spec, made.outputs))


def stateful_ops(graph: Any) -> list[str]:
    """'type name' of the ops of a graph, and of the functions it calls, that make TensorFlow run it in program order."""
    found = []
    for op in graph.get_operations():
        bodies = _bodies(op)
        inner = [name for body in bodies for name in stateful_ops(body)]
        found += inner or ([f'{op.type} {op.name}'] if op.op_def.is_stateful and op.type not in _HARMLESS and not bodies else [])
    return found


def stateful_types(op: tf.Operation) -> list[str]:
    """Types of the stateful ops that an op is, or runs: those in the branches of a cond, the body of a loop, a function."""
    if op.op_def is None or not op.op_def.is_stateful:
        return []
    inner = [name.split()[0] for body in _bodies(op) for name in stateful_ops(body)]
    return inner or ([] if op.type in _HARMLESS else [op.type])


def _placeholder(spec: Any) -> tf.Tensor:
    return tf.compat.v1.placeholder(tf.as_dtype(spec.dtype), tf.TensorShape(spec.shape))


# Activations kept for backward.


def _kept_bytes(made: Trace) -> float:
    """Bytes of the forward tensors that the gradient reads; adds the gradient to the graph."""
    graph = made.graph
    forward = set(graph.get_operations())
    given = {*_names(leaves(made.theta)), *_names(leaves(made.inputs)), *_names(made.position)}
    with graph.as_default():
        targets = [t for t in [*leaves(made.outputs), *made.emissions.losses.values()] if t.dtype.is_floating]
        sources = [t for t in [*leaves(made.theta), *leaves(made.inputs)] if t.dtype.is_floating]
        if not targets or not sources:
            return 0.
        gradients = tf.gradients(targets, sources, [tf.compat.v1.placeholder(t.dtype, t.shape) for t in targets])
    varying = _depend_on([*leaves(made.inputs), *made.position], graph.get_operations())
    kept: dict[str, tf.Tensor] = {}
    for tensor in _reads_of([t for g in gradients for t in _dense(g)], forward):
        root = _viewed(tensor)
        if root.name not in given and root.name in varying and (root.shape.rank != 0 or root.dtype == tf.variant):
            kept[root.name] = root
    return sum(_bytes(t) for t in kept.values())


def _bytes(tensor: tf.Tensor) -> float:
    """The bytes of a tensor, or of a list to which a loop appends one a turn; 0 where the shape is not known."""
    if tensor.dtype == tf.variant and tensor.op.type in _LOOPS:
        append = _viewed(_loop_body(tensor.op).outputs[tensor.value_index]).op
        return _max_turns(tensor.op) * _bytes(append.inputs[1]) if append.type == 'TensorListPushBack' else 0.
    return num_bytes(tensor) if tensor.shape.is_fully_defined() and tensor.dtype.size else 0.


def _reads_of(tensors: list[tf.Tensor], forward: set[Any]) -> list[tf.Tensor]:
    """The outputs of `forward` ops that the ops between them and `tensors` read."""
    read, seen, todo = [], set(), [t.op for t in tensors]
    while todo:
        op = todo.pop()
        if op in seen or op in forward:
            continue
        seen.add(op)
        read += [t for t in op.inputs if t.op in forward and op.type not in _SHAPE_ONLY]
        todo += [t.op for t in op.inputs]
    return read


def _depend_on(sources: Iterable[tf.Tensor], ops: list[Any]) -> set[str]:
    """The names of all tensors that are functions of the sources."""
    found = _names(sources)
    for op in ops:
        if any(t.name in found for t in op.inputs):
            found |= _names(op.outputs)
    return found


def _viewed(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor whose memory this one shares."""
    while True:
        op, i = tensor.op, tensor.value_index
        if op.type in _VIEWS:
            tensor = op.inputs[i if op.type == 'IdentityN' else 0]
        elif op.type in _LOOPS and _viewed(_loop_body(op).outputs[i]) is _loop_body(op).inputs[i]:  # what a loop does not change
            tensor = op.inputs[i]
        else:
            return tensor


def _loop_body(loop: Any) -> Any:
    return loop.graph._get_function(loop.get_attr('body').name).graph


def _names(tensors: Iterable[tf.Tensor]) -> set[str]:
    return {t.name for t in tensors}


def _dense(gradient: Any) -> list[tf.Tensor]:
    if gradient is None:
        return []
    return [gradient.values, gradient.indices] if isinstance(gradient, tf.IndexedSlices) else [gradient]


_VIEWS = frozenset('Identity IdentityN Reshape Squeeze ExpandDims StopGradient PreventGradient EnsureShape Snapshot'.split())
_SHAPE_ONLY = frozenset('Shape ShapeN Size Rank ZerosLike OnesLike'.split())
_LOOPS = frozenset(['While', 'StatelessWhile'])
# Stateful by declaration only; they are no obstacle to a pipeline.
_HARMLESS = frozenset(['Placeholder', 'PlaceholderWithDefault'])


# FLOPs.


def count_flops(graph: Any) -> float:
    """Floating point operations of one run of a graph, the functions it calls included; a multiply-add counts 2.

    Of the branches of a conditional the dearest counts; a loop counts as often as it can run.

    Raises:
      ValueError: a shape is not known, or a loop has no bound.
    """
    return float(sum(_flops(op) for op in graph.get_operations()))


def _flops(op: Any) -> float:
    bodies = _bodies(op)
    if op.type in _LOOPS:
        return _max_turns(op) * sum(count_flops(body) for body in bodies)
    if bodies:
        return max(count_flops(body) for body in bodies)
    has_floats = any(t.dtype.is_floating or t.dtype.is_complex for t in [*op.inputs, *op.outputs])
    if not has_floats or op.type in _FREE or op.type.startswith('TensorList'):
        return 0.
    return float(_FORMULAS.get(op.type, _elementwise)(op))


def _max_turns(loop: Any) -> float:
    bound = loop.inputs[1]  # loop_counter, maximum_iterations, ...
    while bound.op.type in _VIEWS or bound.op.type == 'Max' and bound.op.inputs[0].shape.rank == 0:
        bound = bound.op.inputs[0]
    turns = tf.get_static_value(bound)
    if turns is None or turns < 0:
        raise ValueError(f'the loop {loop.name!r} may run any number of times, but its FLOPs need a bound; give '
                         'tf.while_loop its maximum_iterations, or the layer a cost method.')
    return float(turns)


def _bodies(op: Any) -> list[Any]:
    """The graphs of the functions that an op runs, its gradient left out."""
    names = []
    for attr in op.op_def.attr:
        if attr.type == 'func':
            names.append(op.get_attr(attr.name).name)
        elif attr.type == 'list(func)':
            names += [f.name for f in op.get_attr(attr.name)]
    found = [op.graph._get_function(name) for name in names]  # FuncGraph has no public way to its library
    return [f.graph for f in found if f is not None]


def _size(tensor: tf.Tensor) -> int:
    return math.prod(static_shape(tensor, tensor.op.name, f'tensor {tensor.name!r}'))


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
    return 2. * _size(op.outputs[0]) * math.prod(_shape(op.inputs[1])[:-1])  # [kh, kw, input channels, filters]


def _depthwise_conv(op: Any) -> float:
    return 2. * _size(op.outputs[0]) * math.prod(_shape(op.inputs[1])[:2])  # [kh, kw, channels, multiplier]


def _conv_transposed(op: Any) -> float:
    return 2. * _size(op.inputs[2]) * math.prod(_shape(op.inputs[1])[:-1])  # the gradient for the input of a _conv


def _depthwise_conv_transposed(op: Any) -> float:
    return 2. * _size(op.inputs[2]) * math.prod(_shape(op.inputs[1])[:2])


def _conv_filter_gradient(op: Any) -> float:
    return 2. * _size(op.inputs[2]) * math.prod(_shape(op.outputs[0])[:-1])


def _depthwise_filter_gradient(op: Any) -> float:
    return 2. * _size(op.inputs[2]) * math.prod(_shape(op.outputs[0])[:2])


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
    'Conv2D': _conv, 'Conv3D': _conv, 'DepthwiseConv2dNative': _depthwise_conv,
    'Conv2DBackpropInput': _conv_transposed, 'Conv3DBackpropInputV2': _conv_transposed,
    'DepthwiseConv2dNativeBackpropInput': _depthwise_conv_transposed,
    'Conv2DBackpropFilter': _conv_filter_gradient, 'Conv3DBackpropFilterV2': _conv_filter_gradient,
    'DepthwiseConv2dNativeBackpropFilter': _depthwise_filter_gradient,
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
