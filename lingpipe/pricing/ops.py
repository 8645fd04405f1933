"""Ops of a graph: the functions they call, the turns of loops, views, and which are stateful."""
from __future__ import annotations

from collections.abc import Collection, Sequence

import tensorflow as tf

from lingpipe.layers.static_shapes import num_bytes

VIEWS = frozenset("""
    Identity IdentityN Reshape Squeeze ExpandDims StopGradient PreventGradient EnsureShape Snapshot
    """.split())
LOOPS = frozenset(['While', 'StatelessWhile'])

# These are declared stateful, but they are no obstacle to a pipeline.
_HARMLESS = frozenset(['Placeholder', 'PlaceholderWithDefault'])
REMARKS = frozenset(['PrintV2', 'Print', 'Assert'])  # They say something, and change nothing.


def bodies(op: tf.Operation) -> list[tf.Graph]:
    """The graphs of the functions that an op calls, except its gradient."""
    names = []
    for attribute in op.op_def.attr:
        if attribute.type == 'func':
            names.append(op.get_attr(attribute.name).name)
        elif attribute.type == 'list(func)':
            names += [function.name for function in op.get_attr(attribute.name)]
    # FuncGraph has no public way to its library.
    functions = [op.graph._get_function(name) for name in names]
    return [function.graph for function in functions if function is not None]


def loop_body(loop: tf.Operation) -> tf.Graph:
    """The graph of one turn of a loop."""
    return loop.graph._get_function(loop.get_attr('body').name).graph


def max_turns(loop: tf.Operation) -> float:
    """How many turns a loop can make.

    Raises:
      ValueError: there is no bound.
    """
    bound = loop.inputs[1]  # The inputs are loop_counter, maximum_iterations, ...
    while (bound.op.type in VIEWS
           or bound.op.type == 'Max' and bound.op.inputs[0].shape.rank == 0):
        bound = bound.op.inputs[0]
    turns = tf.get_static_value(bound)
    if turns is None or turns < 0:
        raise ValueError(f'the loop {loop.name!r} may run any number of times, but its FLOPs need '
                         'a bound; give tf.while_loop its maximum_iterations, or the layer a cost '
                         'method.')
    return float(turns)


def viewed(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor whose memory this one shares: itself, unless it is a view."""
    while True:
        op, index = tensor.op, tensor.value_index
        if op.type in VIEWS:
            tensor = op.inputs[index if op.type == 'IdentityN' else 0]
        elif op.type in LOOPS and _is_unchanged(op, index):
            tensor = op.inputs[index]
        else:
            return tensor


def _is_unchanged(loop: tf.Operation, index: int) -> bool:
    """Whether a loop returns one of its inputs as it is."""
    body = loop_body(loop)
    return viewed(body.outputs[index]) is body.inputs[index]


def stateful_types(op: tf.Operation) -> list[str]:
    """The types of the stateful ops that an op is or runs.

    It runs those in the branches of a conditional, the body of a loop, or a function.
    """
    if op.op_def is None or not op.op_def.is_stateful:
        return []
    inner = [op_type for body in bodies(op) for inner_op in body.get_operations()
             for op_type in stateful_types(inner_op)]
    return inner or ([] if op.type in _HARMLESS else [op.type])


def impure_types(op: tf.Operation) -> list[str]:
    """The types of the stateful ops that an op is or runs, without those of REMARKS."""
    return [op_type for op_type in stateful_types(op) if op_type not in REMARKS]


def impure(path: str, op: tf.Operation) -> ValueError:
    """The error about an op that has `impure_types`, in the layer or cell of this path."""
    return ValueError(
        f'{path} makes the stateful op {impure_types(op)[0]} ({op.name}); tasks of a pipeline must '
        'be pure functions, or recomputation and resuming would give other results: use '
        'tf.random.stateless_* with ctx.seed(self.path), declare weights with add_weight, and emit '
        'what is to be kept through the context.')


def bytes_of(tensor: tf.Tensor) -> int:
    """The bytes of a tensor, or of a list whose tensors a loop makes, one a turn.

    They are 0 if the shape is not known.
    """
    if tensor.dtype == tf.variant:
        return _bytes_of_list(tensor.op, tensor.value_index) if tensor.op.type in LOOPS else 0
    is_known = tensor.shape.is_fully_defined() and tensor.dtype.size
    return num_bytes(tensor) if is_known else 0


def _bytes_of_list(loop: tf.Operation, index: int) -> int:
    """The bytes of a list that a loop returns, if every turn appends or sets one of its tensors."""
    change = viewed(loop_body(loop).outputs[index]).op
    if change.type == 'TensorListPushBack':
        return int(max_turns(loop)) * bytes_of(change.inputs[1])
    start = viewed(loop.inputs[index]).op
    if change.type == 'TensorListSetItem' and start.type == 'TensorListReserve':
        return (tf.get_static_value(start.inputs[1]) or 0) * bytes_of(change.inputs[2])
    return 0


def narrow_casts(graph: tf.Graph, names: Collection[str]) -> list[tf.Tensor]:
    """The casts to a narrower floating dtype of the tensors of these names, in a graph."""
    return [op.outputs[0] for op in graph.get_operations()
            if op.type == 'Cast' and op.inputs[0].name in names
            and op.outputs[0].dtype.is_floating and op.inputs[0].dtype.is_floating
            and op.outputs[0].dtype.size < op.inputs[0].dtype.size]


def ancestors(tensors: Sequence[tf.Tensor], stop: Collection[str],
              done: Collection[str] = ()) -> dict[str, tf.Operation]:
    """The ops (by name) that the tensors need, by data or control.

    The search does not go past the tensors named in `stop`, nor by control to the ops named in
    `done`.
    """
    found: dict[str, tf.Operation] = {}
    stopped_ops = {*(name.split(':')[0] for name in stop), *done}
    stack = [tensor.op for tensor in tensors if tensor.name not in stop]
    while stack:
        op = stack.pop()
        if op.name not in found:
            found[op.name] = op
            stack.extend(tensor.op for tensor in op.inputs if tensor.name not in stop)
            stack.extend(control for control in op.control_inputs
                         if control.name not in stopped_ops)
    return found
