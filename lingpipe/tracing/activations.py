"""Activations: the bytes that are kept from forward to backward.

They are not guessed: the gradient is built behind the forward graph, and what it reads of the forward graph is what has to be kept.
Views (a reshape) are the tensor that they view.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from lingpipe.nested import leaves
from lingpipe.tracing.graph import Trace
from lingpipe.tracing.ops import LOOPS, loop_body, max_turns, viewed
from lingpipe.tracing.shapes import num_bytes

_SHAPE_ONLY = frozenset('Shape ShapeN Size Rank ZerosLike OnesLike'.split())


def kept_bytes(made: Trace) -> float:
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
        root = viewed(tensor)
        if root.name not in given and root.name in varying and (root.shape.rank != 0 or root.dtype == tf.variant):
            kept[root.name] = root
    return sum(_bytes(t) for t in kept.values())


def _bytes(tensor: tf.Tensor) -> float:
    """The bytes of a tensor, or of a list to which a loop appends one a turn; 0 where the shape is not known."""
    if tensor.dtype == tf.variant and tensor.op.type in LOOPS:
        append = viewed(loop_body(tensor.op).outputs[tensor.value_index]).op
        return max_turns(tensor.op) * _bytes(append.inputs[1]) if append.type == 'TensorListPushBack' else 0.
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


def _names(tensors: Iterable[tf.Tensor]) -> set[str]:
    return {t.name for t in tensors}


def _dense(gradient: Any) -> list[tf.Tensor]:
    if gradient is None:
        return []
    return [gradient.values, gradient.indices] if isinstance(gradient, tf.IndexedSlices) else [gradient]
