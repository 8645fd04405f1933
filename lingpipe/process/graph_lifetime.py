"""Graph lifetime: what TensorFlow would keep for ever of a graph ends with it here.

Of a program with a Transformer of four layers, 11 MB stayed in the process after its end, of an
AmoebaNet of the digits 30 MB. There were three reasons:

- TensorFlow enters each gradient that tf.custom_gradient makes in a graph into a table, as
  "CustomGradient-17", and takes none out. The gradient holds tensors, and these the whole graph.
  Here the graph holds the gradient, and the table only says where it is.
- wrap_function registers the functions that its graph calls, here and on all workers, and never
  takes them back. Here they are taken back when the wrapped function ends.
- TensorFlow 2.21's tape takes one reference too many to a gradient that it returns for two sources,
  as for those of x + y. Here that reference is given back, if the tape is seen to take it.
"""
from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops

_OF_OP = '_gradient_op_type'  # The attribute with the name of an op's gradient.
_OF_GRAPH = 'custom_gradients'  # The attribute of a graph with its gradients, by name.


def wrap_function(body: Callable[..., Any], specs: Sequence[tf.TensorSpec]
                  ) -> tf.types.experimental.ConcreteFunction:
    """Does what tf.compat.v1.wrap_function does; the functions it calls end with the result."""
    wrapped = tf.compat.v1.wrap_function(body, specs)
    called = [function.signature.name for function in wrapped.graph.as_graph_def().library.function]
    _at_end_of(wrapped, _take_back, context.context(), called)
    return wrapped


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Does what tf.custom_gradient does; the gradient ends with the graph, in loops too."""
    differentiable = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        results = differentiable(*args, **kwargs)
        if not tf.executing_eagerly():
            _hold_gradient(tf.nest.flatten(results)[0].op)
        return results

    return call


def gradients_of(tape: tf.GradientTape, targets: Sequence[tf.Tensor],
                 sources: Sequence[tf.Tensor], output_gradients: Sequence[tf.Tensor]
                 ) -> list[tf.Tensor | tf.IndexedSlices | None]:
    """Does what tape.gradient does; a gradient of several sources ends with its graph."""
    gradients: list[Any] = tape.gradient(targets, sources, output_gradients=output_gradients)
    if _loses_references():
        by_source = dict(zip([source.ref() for source in sources], gradients, strict=True))
        shared = collections.Counter(gradient.ref() for gradient in by_source.values()
                                     if isinstance(gradient, tf.Tensor))
        for reference, num_sources in shared.items():
            for _ in range(num_sources - 1):
                ctypes.pythonapi.Py_DecRef(ctypes.py_object(reference.deref()))
    return gradients


@functools.cache
def _loses_references() -> bool:
    """Whether a tape takes one reference too many to the gradient of x + y."""
    with tf.Graph().as_default():
        x, y, seed = (tf.compat.v1.placeholder(tf.float32, []) for _ in range(3))
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            total = x + y
        before = sys.getrefcount(seed)
        gradients = tape.gradient(total, [x, y], output_gradients=seed)
        return sys.getrefcount(seed) - before > sum(gradient is seed for gradient in gradients)


def hold_gradients(graph: tf.Graph) -> None:
    """Does the same for what others have written: tf.nn.silu, or users' own layers.

    The graphs of loops and branches in this one are not looked into.
    """
    for op in graph.get_operations():
        if op.type == 'IdentityN' and _OF_OP in op.node_def.attr:
            _hold_gradient(op)


def _hold_gradient(op: tf.Operation) -> None:
    """Moves the gradient of an op from TensorFlow's table to the op's graph."""
    name = op.get_attr(_OF_OP).decode()
    table = ops.gradient_registry._registry
    if not hasattr(op.graph, _OF_GRAPH):
        setattr(op.graph, _OF_GRAPH, {})
    of_graph: dict[str, Callable[..., Any]] = getattr(op.graph, _OF_GRAPH)
    if name in of_graph or not name.startswith('CustomGradient-') or name not in table:
        return

    of_graph[name] = table[name]['type']
    graph = weakref.ref(op.graph)

    def gradient(op: tf.Operation, *dys: tf.Tensor) -> Any:
        return getattr(graph(), _OF_GRAPH)[name](op, *dys)

    table[name] = {**table[name], 'type': gradient}
    _at_end_of(op.graph, table.pop, name, None)


def _take_back(registered_in: Any, names: Sequence[str]) -> None:
    """Takes back one registration of each of these functions."""
    for name in names:
        with contextlib.suppress(tf.errors.OpError):  # A context that was reset has none.
            registered_in.remove_function(name)


def _at_end_of(owner: object, call: Callable[..., Any], *args: Any) -> None:
    """Calls a function after the end of an object, but not at the end of the process."""
    weakref.finalize(owner, call, *args).atexit = False
