"""Ops of a graph: the functions that they run, how often a loop turns, whose memory a tensor shares, and which are stateful."""
from __future__ import annotations

from typing import Any

import tensorflow as tf

VIEWS = frozenset('Identity IdentityN Reshape Squeeze ExpandDims StopGradient PreventGradient EnsureShape Snapshot'.split())
LOOPS = frozenset(['While', 'StatelessWhile'])
# Stateful by declaration only; they are no obstacle to a pipeline.
_HARMLESS = frozenset(['Placeholder', 'PlaceholderWithDefault'])


def bodies(op: Any) -> list[Any]:
    """The graphs of the functions that an op runs, its gradient left out."""
    names = []
    for attr in op.op_def.attr:
        if attr.type == 'func':
            names.append(op.get_attr(attr.name).name)
        elif attr.type == 'list(func)':
            names += [f.name for f in op.get_attr(attr.name)]
    found = [op.graph._get_function(name) for name in names]  # FuncGraph has no public way to its library
    return [f.graph for f in found if f is not None]


def loop_body(loop: Any) -> Any:
    """The graph of one turn of a loop."""
    return loop.graph._get_function(loop.get_attr('body').name).graph


def max_turns(loop: Any) -> float:
    """How often a loop can run.

    Raises:
      ValueError: it has no bound.
    """
    bound = loop.inputs[1]  # loop_counter, maximum_iterations, ...
    while bound.op.type in VIEWS or bound.op.type == 'Max' and bound.op.inputs[0].shape.rank == 0:
        bound = bound.op.inputs[0]
    turns = tf.get_static_value(bound)
    if turns is None or turns < 0:
        raise ValueError(f'the loop {loop.name!r} may run any number of times, but its FLOPs need a bound; give '
                         'tf.while_loop its maximum_iterations, or the layer a cost method.')
    return float(turns)


def viewed(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor whose memory this one shares."""
    while True:
        op, i = tensor.op, tensor.value_index
        if op.type in VIEWS:
            tensor = op.inputs[i if op.type == 'IdentityN' else 0]
        elif op.type in LOOPS and viewed(loop_body(op).outputs[i]) is loop_body(op).inputs[i]:  # what a loop does not change
            tensor = op.inputs[i]
        else:
            return tensor


def stateful_types(op: tf.Operation) -> list[str]:
    """Types of the stateful ops that an op is, or runs: those in the branches of a cond, the body of a loop, a function."""
    if op.op_def is None or not op.op_def.is_stateful:
        return []
    inner = [kind for body in bodies(op) for each in body.get_operations() for kind in stateful_types(each)]
    return inner or ([] if op.type in _HARMLESS else [op.type])
