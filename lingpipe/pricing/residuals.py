"""Residuals: the tensors of a forward pass that its backward pass starts from.

They are not guessed: the gradient is built behind the forward graph, and what it reads of the forward graph is what has to be kept.
`residual_tensors` finds them in any graph. The tracer of the pipeline cuts its tasks there, and `residuals_of_layer` asks it about the
graph of one layer, so that a forecast counts what the tasks really hand over.

Views (a reshape) share the memory of the tensor that they view, so bytes are counted by the tensor behind them, its root.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.layers.base import Layer
from lingpipe.layers.context import Emissions
from lingpipe.layers.nested import leaves
from lingpipe.layers.static_shapes import num_bytes
from lingpipe.pricing.graph import Trace, trace
from lingpipe.pricing.ops import LOOPS, loop_body, max_turns, viewed

Leaf = tuple[int, int]
"""The place of a value among those that a layer reads, or among those that it writes, and the index of a leaf of it."""


@dataclasses.dataclass(frozen=True)
class Residuals:
    """What the backward pass of one layer takes over from its forward pass.

    Attributes:
      inner_bytes: bytes of tensors that are neither inputs nor outputs.
      inputs: the leaves of the inputs that are read.
      outputs: the leaves of the outputs whose memory is kept.
      gradients: the leaves of the inputs that get a gradient.
      views: an output leaf -> the leaf of the inputs ('reads') or of the outputs ('writes') whose memory it shares.
    """
    inner_bytes: int = 0
    inputs: frozenset[Leaf] = frozenset()
    outputs: frozenset[Leaf] = frozenset()
    gradients: frozenset[Leaf] = frozenset()
    views: Mapping[Leaf, tuple[str, Leaf]] = dataclasses.field(default_factory=dict)


def residuals_of_layer(layer: Layer, inputs: Mapping[str, Any], trained: Sequence[str], differentiated: Callable[[Leaf], bool],
                       asked: Callable[[Leaf], bool]) -> Residuals:
    """Traces a layer, forward and backward, and finds what is handed over.

    Args:
      layer: the layer.
      inputs: argument of fprop -> nested tf.TensorSpec, in the order to which leaves refer.
      trained: the paths of the weights whose gradients are wanted.
      differentiated: whether the gradient of a leaf of the inputs is wanted.
      asked: whether later layers give a gradient of a leaf of the outputs.
    """
    made = trace(layer, **inputs)
    written = layer.written(made.outputs)
    given = {(n, i): tensor for n, name in enumerate(inputs) for i, tensor in enumerate(leaves(made.inputs[name]))}
    results = {(n, i): tensor for n, value in enumerate(written.values()) for i, tensor in enumerate(leaves(value))}
    targets = [tensor for leaf, tensor in results.items() if asked(leaf)]
    wanted = [leaf for leaf in given if differentiated(leaf)]
    sources = [made.weights[path] for path in trained] + [given[leaf] for leaf in wanted]
    gradients, kept = _kept(made, targets, sources, [*results.values(), *_emitted(made.emissions)])

    given_by_root = {tensor.name: leaf for leaf, tensor in given.items()}
    first_by_root: dict[str, Leaf] = {}
    views: dict[Leaf, tuple[str, Leaf]] = {}
    for leaf, tensor in results.items():
        root = viewed(tensor).name
        if root in given_by_root:
            views[leaf] = 'reads', given_by_root[root]
        elif first_by_root.setdefault(root, leaf) != leaf:
            views[leaf] = 'writes', first_by_root[root]
    return Residuals(
        sum(bytes_of(tensor) for name, tensor in kept.items() if name not in given_by_root and name not in first_by_root),
        frozenset(given_by_root[name] for name in kept if name in given_by_root),
        frozenset(first_by_root[name] for name in kept if name in first_by_root),
        frozenset(leaf for leaf, gradient in zip(wanted, gradients[len(trained):], strict=True) if gradient is not None), views)


def _kept(made: Trace, targets: Sequence[tf.Tensor], sources: Sequence[tf.Tensor], forward: Sequence[tf.Tensor],
          ) -> tuple[list[Any], dict[str, tf.Tensor]]:
    """Adds the gradient to the graph. Returns that of each source, or None, and by name the roots of the forward tensors that it reads."""
    targets = [*targets, *made.emissions.losses.values()]
    if not targets or not sources:
        return [None] * len(sources), {}
    with made.graph.as_default():
        seeds = [tf.compat.v1.placeholder(t.dtype, t.shape) for t in targets]
        found = tf.gradients(targets, sources, seeds)
    gradients = [t for gradient in found for t in _dense(gradient)]
    inputs = leaves(made.inputs)
    args = [*inputs, *made.position, *made.weights.values(), *seeds]
    residuals = residual_tensors(forward, gradients, args, [*inputs, *made.position])
    stop = {t.name for t in [*args, *residuals]}
    read = {t.name for op in ancestors(gradients, stop).values() for t in op.inputs}
    weights = {t.name for t in made.weights.values()}  # a loop hands them over, though they are in memory anyway
    roots = map(viewed, [*residuals, *(t for t in inputs if t.name in read)])
    return found, {root.name: root for root in roots if root.name not in weights}


def residual_tensors(forward: Sequence[tf.Tensor], backward: Sequence[tf.Tensor], args: Sequence[tf.Tensor],
                     micro_batch_args: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The tensors made by the forward pass that the backward pass starts from.

    What depends on weights alone (a weight cast to bfloat16, say) is made again instead: it would be kept once for every
    micro-batch in flight.

    Args:
      forward, backward: what the two passes fetch.
      args: all arguments of the traced function.
      micro_batch_args: those that differ from one micro-batch to the next.
    """
    stop = {t.name for t in args}
    forward_ops = ancestors(forward, stop)
    dependent = {t.op.name for t in micro_batch_args}
    for op in args[0].graph.get_operations():  # in the order of making, so inputs come first
        if op.name in forward_ops and any(t.op.name in dependent for t in op.inputs):
            dependent.add(op.name)
    residuals: dict[str, tf.Tensor] = {}
    seen: set[str] = set()
    stack = list(backward)
    while stack:
        tensor = stack.pop()
        op = tensor.op
        if tensor.name in stop:
            continue
        if op.name in forward_ops and op.name in dependent:
            residuals[tensor.name] = tensor
        elif op.name not in seen:
            seen.add(op.name)
            stack.extend(op.inputs)
            for control in op.control_inputs:
                if control.name not in forward_ops or control.name not in dependent:
                    stack.extend(control.outputs[:1] or control.inputs)
    return [residuals[name] for name in sorted(residuals)]


def ancestors(tensors: Sequence[tf.Tensor], stop: set[str]) -> dict[str, tf.Operation]:
    """The ops (by name) that the tensors need, data and control, not going past the tensors named in `stop`."""
    seen: dict[str, tf.Operation] = {}
    stopped_ops = {name.split(':')[0] for name in stop}
    stack = [t.op for t in tensors if t.name not in stop]
    while stack:
        op = stack.pop()
        if op.name not in seen:
            seen[op.name] = op
            stack.extend(t.op for t in op.inputs if t.name not in stop)
            stack.extend(control for control in op.control_inputs if control.name not in stopped_ops)
    return seen


def bytes_of_roots(tensors: Sequence[tf.Tensor], others: Sequence[tf.Tensor]) -> int:
    """The bytes that tensors of one graph take together, besides `others`: what several of them view counts once."""
    counted = {viewed(tensor).name for tensor in others}
    return sum(bytes_of(root) for root in {root.name: root for root in map(viewed, tensors)}.values() if root.name not in counted)


def bytes_of(tensor: tf.Tensor) -> int:
    """The bytes of a tensor, or of a list to which a loop appends one a turn; 0 where the shape is not known."""
    if tensor.dtype == tf.variant and tensor.op.type in LOOPS:
        append = viewed(loop_body(tensor.op).outputs[tensor.value_index]).op
        return int(max_turns(tensor.op)) * bytes_of(append.inputs[1]) if append.type == 'TensorListPushBack' else 0
    return num_bytes(tensor) if tensor.shape.is_fully_defined() and tensor.dtype.size and tensor.dtype != tf.variant else 0


def _emitted(emissions: Emissions) -> list[tf.Tensor]:
    """Every tensor that a layer emitted."""
    values = [value for kind in dataclasses.fields(Emissions) for value in getattr(emissions, kind.name).values()]
    return [tensor for value in values for tensor in (value if isinstance(value, tuple) else (value,))]


def _dense(gradient: Any) -> list[tf.Tensor]:
    if gradient is None:
        return []
    return [gradient.values, gradient.indices] if isinstance(gradient, tf.IndexedSlices) else [gradient]
