"""Narrow weights: those of a function that it only casts to a narrower dtype, such as bfloat16.

They may be cast before the function is called, once for many calls. But a layer may also ask for
the dtype of a weight, for example to return its result in it; then it would compute something else.
So the function is traced with the narrow weights, too, and must make the same operations.
"""
from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.layers.nested import Nested
from lingpipe.pricing import narrow_casts
from lingpipe.process.graph_lifetime import wrap_function


def narrow_weights(function: Callable[..., object], weights: Mapping[str, tf.TensorSpec],
                   inputs: Sequence[Nested]) -> dict[str, tf.DType]:
    """Path -> the narrower dtype, of the weights that may be given to a function in this dtype.

    Args:
      function: of tensors like `weights` and `inputs`.
      weights: by path.
      inputs: specs of what else it is given.
    """
    wide = _traced(function, weights, inputs)
    tensors = dict(zip(sorted(weights), wide.inputs, strict=False))   # The others follow.
    casts = {cast.op.name: cast.dtype for cast in narrow_casts(
        wide.graph, {tensor.name for tensor in tensors.values()})}
    dtypes = {path: {casts.get(op.name) for op in tensor.consumers()}
              for path, tensor in tensors.items()}
    narrow = {path: dtype for path, all_dtypes in dtypes.items() if len(all_dtypes) == 1
              for dtype in all_dtypes if dtype}
    if not narrow:
        return {}

    specs = {path: tf.TensorSpec(spec.shape, narrow.get(path, spec.dtype))
             for path, spec in weights.items()}
    cut = {op.name for path in narrow for op in tensors[path].consumers()}
    try:
        narrow_graph = _traced(function, specs, inputs).graph
    except Exception:   # Whatever a layer raises, it is for the dtype.
        return {}
    return narrow if _operations(narrow_graph) == _operations(wide.graph, cut) else {}


def _traced(function: Callable[..., object], weights: Mapping[str, tf.TensorSpec],
            inputs: Sequence[Nested]) -> Any:
    """A graph of the function, whose first inputs are the weights in the order of their paths."""
    specs = [dict(weights), *inputs]

    def body(*flat: tf.Tensor) -> None:
        function(*tf.nest.pack_sequence_as(specs, flat))

    with tf.init_scope():   # This may be asked for while another graph is built.
        return wrap_function(body, tf.nest.flatten(specs))


def _operations(graph: tf.Graph, left_out: Collection[str] = ()
                ) -> collections.Counter[tuple[str, ...]]:
    """How many operations there are of each type and attributes, in loops and branches, too.

    Inputs do not count.
    """
    definition = graph.as_graph_def()
    nodes = [node for node in definition.node if node.name not in left_out]
    for function in definition.library.function:
        nodes += function.node_def
    return collections.Counter(_kind(node) for node in nodes if node.op != 'Placeholder')


def _kind(node: Any) -> tuple[str, ...]:
    """The type of an operation, and its attributes but those that differ from trace to trace.

    These are names of functions.
    """
    attributes = {name: str(value) for name, value in node.attr.items()
                  if not name.startswith('_') and not value.HasField('func')
                  and not value.list.func}
    return node.op, *(f'{name}={attributes[name]}' for name in sorted(attributes))
