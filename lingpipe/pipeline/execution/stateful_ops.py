"""Stateful ops: those that a task may contain, and the error for all others."""
from __future__ import annotations

import tensorflow as tf

from lingpipe.pipeline.execution.layer_call import scope_of
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.pricing import stateful_types

# Stateful ops that a task may contain: its own, and those ops of layers that change nothing.
_OWN_STATEFUL = frozenset([
    'ReadVariableOp', 'AssignAddVariableOp', 'AssignVariableOp', 'ResourceStridedSliceAssign',
    'VarIsInitializedOp', 'Placeholder', 'CollectiveReduceV2'])
_REMARKS = frozenset(['PrintV2', 'Print', 'Assert'])


def remarks_of(graph: tf.Graph) -> list[tf.Operation]:
    """Returns the ops that print or check an assertion."""
    return [op for op in graph.get_operations() if set(stateful_types(op)) & _REMARKS]


def refuse_stateful(cell: Cell, graph: tf.Graph) -> None:
    """Raises ValueError if a layer of the cell has made a stateful op in the graph."""
    for op in graph.get_operations():
        kinds = [kind for kind in stateful_types(op) if kind not in _REMARKS]
        if not kinds:
            continue
        path = next((element.layer.path for element in cell.elements
                     if op.name.startswith(scope_of(element.layer.path))), '')
        if not path and set(kinds) <= _OWN_STATEFUL:
            continue
        raise ValueError(
            f'{path or f"cell {cell.index}"} makes the stateful op {kinds[0]} ({op.name}); tasks '
            f'of a pipeline must be pure functions, or recomputation and resuming would give other '
            f'results: use tf.random.stateless_* with ctx.seed(self.path), declare weights with '
            f'add_weight, and emit what is to be kept through the context.')
