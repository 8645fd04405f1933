"""The graph of one call of fprop, built on placeholders: no variable, no data."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NoReturn

import tensorflow as tf

from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context, Emissions
from lingpipe.layers.nested import Nested, flatten, leaves, map_leaves
from lingpipe.pricing.ops import impure, impure_types
from lingpipe.process import graph_lifetime

FPROP = 'fprop'   # The name scope of all ops of a fprop.

# What the graph has of a layer that computes nothing, as one that checks shapes.
_NOTHING = frozenset(['Placeholder', 'Const', 'EnsureShape'])


@dataclasses.dataclass(frozen=True)
class Trace:
    """The graph of one call of fprop.

    Attributes:
      graph: the graph of a function, all of whose inputs are placeholders.
      weights: path -> the placeholder of a weight.
      inputs: (args, kwargs) of fprop with placeholders in place of specs, as one nested value.
      position: placeholders of the step and the micro-batch.
      outputs: what fprop returned.
      emissions: what it emitted.
    """
    graph: tf.Graph
    weights: dict[str, tf.Tensor]
    inputs: dict[str, Nested]
    position: tuple[tf.Tensor, tf.Tensor]
    outputs: Nested
    emissions: Emissions

    @property
    def micro_batch_args(self) -> list[tf.Tensor]:
        """The arguments that differ from one micro-batch to the next."""
        return [*leaves(self.inputs), *self.position]


def trace(layer: Layer, *args: Nested, training: bool = True, **kwargs: Nested) -> Trace:
    """Builds the graph of layer.fprop on placeholders.

    Args:
      layer: of any kind.
      args, kwargs: those of fprop after ctx, as nested tf.TensorSpec.
      training: that of the Context.

    Raises:
      ValueError: fprop makes a variable or a stateful op, returns something that is neither a
        tensor nor a dict of tensors, or has weights or computes something, and neither returns nor
        emits anything.
    """
    def refuse(next_creator: object, **kwargs: object) -> NoReturn:
        name = f' {kwargs["name"]!r}' if kwargs.get('name') else ''
        raise ValueError(f'{layer.path}: fprop of {type(layer).__name__} makes the '
                         f'tf.Variable{name}, but a layer owns no variable; declare the weight in '
                         '__init__ with add_weight, and read it from theta.')

    graph = tf.__internal__.FuncGraph('trace')
    with graph.as_default(), tf.variable_creator_scope(refuse):
        weights = {weight.path: tf.compat.v1.placeholder(weight.dtype, weight.shape)
                   for weight in layer.weights()}
        inputs = map_leaves(_placeholder, {**{str(i): arg for i, arg in enumerate(args)}, **kwargs})
        position = (tf.compat.v1.placeholder(tf.int64, []), tf.compat.v1.placeholder(tf.int32, []))
        positional = [inputs[str(i)] for i in range(len(args))]
        by_name = {name: inputs[name] for name in kwargs}
        # Ops get the names that they have in a scope of their own in the trace of a cell.
        with tf.name_scope(FPROP):
            ctx = Context(training, 0, *position)
            outputs = layer.fprop(layer.theta(weights), ctx, *positional, **by_name)
    graph_lifetime.hold_gradients(graph)

    if outputs is None and training and ctx.emissions == Emissions():
        _check_in_vain(layer, graph, lambda: trace(layer, *args, training=False, **kwargs))
    for op in graph.get_operations():
        if impure_types(op):
            raise impure(layer.path, op)
    for name, value in flatten(outputs):
        if not isinstance(value, tf.Tensor):   # A RaggedTensor and a SparseTensor are several.
            raise ValueError(f'{layer.path}: fprop of {type(layer).__name__} returns a value of '
                             f'type {type(value).__name__}{f" as {name!r}" if name else ""}, but a '
                             'layer returns a tensor or a dict of tensors; return several as '
                             "{'key': tensor, ...} and name them in Params.writes.")
    return Trace(graph, weights, inputs, position, outputs, ctx.emissions)


def _check_in_vain(layer: Layer, graph: tf.Graph, elsewhere: Callable[[], Trace]) -> None:
    """Raises ValueError if a layer has weights or computes, though it has no effect in training.

    Args:
      layer: the layer.
      graph: of its call in training, which returns and emits nothing.
      elsewhere: traces a call outside training, where it may emit something.
    """
    name = f'{layer.path}: fprop of {type(layer).__name__}'
    if layer.num_weights:
        raise ValueError(f'{name} returns nothing and emits nothing, so that its weights have no '
                         'effect; return its output.')
    if _computes_in_vain(graph) and elsewhere().emissions == Emissions():
        raise ValueError(f'{name} computes something, but returns nothing and emits nothing, so '
                         'that it has no effect; return its output, or, if its Params decide '
                         'whether it emits, compute only what is emitted.')


def _computes_in_vain(graph: tf.Graph) -> bool:
    """Whether a graph without outputs computes anything, and checks and prints nothing."""
    ops = graph.get_operations()
    # Checks of what is known leave a NoOp; others, and prints, are stateful.
    checks = any(op.type == 'NoOp' or op.op_def.is_stateful for op in ops)
    return not checks and any(op.type not in _NOTHING for op in ops)


def _placeholder(spec: tf.TensorSpec) -> tf.Tensor:
    return tf.compat.v1.placeholder(tf.as_dtype(spec.dtype), tf.TensorShape(spec.shape))
