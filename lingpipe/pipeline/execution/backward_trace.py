"""Backward trace: the gradients of a cell's layers, traced into the graph of their forward.

Gradients that meet at a value are added one by one, from the last reader to the first, across cells
too: a cell takes the sum so far, adds its own gradient and passes the sum on towards the maker. So
no sum depends on K.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

import tensorflow as tf

from lingpipe.layers import nested
from lingpipe.layers.context import Emissions
from lingpipe.learning.gradient import Gradient
from lingpipe.pipeline.execution.forward_trace import ForwardTrace
from lingpipe.pipeline.execution.layer_call import LayerResult
from lingpipe.pipeline.execution.weight_check import check_weight
from lingpipe.pipeline.planning.cell import Leaf, leaves_of
from lingpipe.pricing import ancestors


class Sums(Protocol):
    """Where the tasks of a cell add emissions and gradients; see accumulators.py."""

    def add_emissions(self, emitted: Emissions) -> list[tf.Operation]:
        """Makes the ops that add the emissions of one micro-batch."""

    def add_gradient(self, path: str, gradient: Gradient, micro_batch: tf.Tensor
                     ) -> list[tf.Operation]:
        """Makes the ops that add the gradient of one micro-batch, whose index is a scalar."""


@dataclasses.dataclass(frozen=True, eq=False)
class BackwardTrace:
    """The result of tracing the layers backward.

    Attributes:
      gradients: leaf of an input -> the sum of its gradients so far.
      differentiated: paths of the weights, as used, that have a gradient.
      written: the tensors that the layers write, in their second run if they have one.
      token: exists once all gradients of weights have been added.
      waits: name of an op with which a layer's backward begins, or with which the layer runs again
        -> names of the ops that make the gradients of what the layer writes, and of those that add
        the gradients of the layer after it. The graph has no such edges, since a task of one kind
        need not have both.
    """
    gradients: Mapping[Leaf, tf.Tensor]
    differentiated: Sequence[str]
    written: Sequence[tf.Tensor]
    token: tf.Tensor
    waits: Mapping[str, Sequence[str]]


def trace_backward(forward: ForwardTrace, sums: Sums,
                   gradients_in: Mapping[Leaf, tf.Tensor]) -> BackwardTrace:
    """Traces the backward of all layers, from the last to the first.

    Args:
      forward: the cell, traced forward.
      sums: where gradients of weights are added.
      gradients_in: leaf -> the sum of its gradients of later cells.

    Raises:
      ValueError: the weight of the main loss has a gradient.
    """
    gradients = dict(gradients_in)
    added: list[tf.Operation] = []
    added_last: list[tf.Operation] = []   # by the last layer that has weights
    waits = {}
    differentiated: list[str] = []
    written: list[tf.Tensor] = []
    for result in reversed(forward.results if forward.options.training else ()):
        element = result.call.element
        if not element.has_backward:
            continue
        check_weight(result)
        # Without `waits`, TensorFlow goes on to the next layer and puts off the gradients of
        # weights. These, or what they read, then stay in memory for several layers at once. So does
        # what a backward makes of forward tensors alone, which could run before any gradient comes.
        complete = [gradients[leaf] for leaf in leaves_of(element.writes.values())
                    if leaf in gradients]
        first: list[tf.Operation] = []
        if forward.options.mode(forward.cell) == 'layer':
            with tf.control_dependencies(complete):
                first.append(tf.no_op('begin_again'))
            result = result.call.repeat(after=first)
        num_before = len(forward.graph.get_operations())
        layer_gradients = result.backward(gradients)
        first = first or _first_ops(result, forward.graph.get_operations()[num_before:])
        before = [*(tensor.op for tensor in complete), *added_last]
        waits.update({op.name: [one.name for one in before] for op in first})
        gradients.update(layer_gradients.inputs)
        added_here = [op for path, gradient in layer_gradients.weights.items()
                      for op in sums.add_gradient(path, gradient, forward.arguments.micro_batch)]
        added += added_here
        added_last = added_here or added_last
        differentiated += layer_gradients.weights
        written += nested.leaves(result.written)

    wanted = {leaf: tf.identity(gradients[leaf]) for leaf in forward.cell.gradients_wanted
              if leaf in gradients}
    return BackwardTrace(wanted, differentiated, written, token_after(added, 'backward_token'),
                         waits)


def _first_ops(result: LayerResult, ops: Sequence[tf.Operation]) -> list[tf.Operation]:
    """Returns the ops with which the backward of a layer begins.

    They read nothing that its other ops make, but for constants.

    Args:
      result: of the layer's forward.
      ops: that were made for the backward. The gradient of a loop also makes some for the forward,
        which gives the backward more than it did before.
    """
    call = result.call
    given = [*call.weights.values(),
             *(leaf for value in call.inputs.values() for leaf in nested.leaves(value))]
    of_forward = ancestors([*nested.leaves(result.written), *result.emissions.tensors()],
                           {tensor.name for tensor in given})
    computed = [op for op in ops if op.type != 'Const' and op.name not in of_forward]
    names = {op.name for op in computed}
    return [op for op in computed if not any(tensor.op.name in names for tensor in op.inputs)]


def token_after(ops: Sequence[tf.Operation | tf.Tensor], name: str) -> tf.Tensor:
    """Makes a tensor that exists once the ops have run."""
    with tf.control_dependencies(ops):
        return tf.constant(0, name=name)
