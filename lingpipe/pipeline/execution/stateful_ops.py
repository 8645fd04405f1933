"""Stateful ops: those that a task may contain, and the error for all others."""
from __future__ import annotations

import tensorflow as tf

from lingpipe.pipeline.execution.layer_call import scope_of
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.pricing import REMARKS, impure, impure_types, stateful_types

# Stateful ops that a task may contain: its own, and those ops of layers that change nothing.
_OWN_STATEFUL = frozenset([
    'ReadVariableOp', 'AssignAddVariableOp', 'AssignVariableOp', 'ResourceStridedSliceAssign',
    'VarIsInitializedOp', 'Placeholder', 'CollectiveReduceV2'])


def remarks_of(graph: tf.Graph) -> list[tf.Operation]:
    """Returns the ops that print or check an assertion."""
    return [op for op in graph.get_operations() if set(stateful_types(op)) & REMARKS]


def refuse_stateful(cell: Cell, graph: tf.Graph) -> None:
    """Raises ValueError if a layer of the cell has made a stateful op in the graph."""
    path_of = {scope_of(element.layer.path): element.layer.path for element in cell.elements}
    for op in graph.get_operations():
        kinds = impure_types(op)
        if not kinds:
            continue
        path = next((path for scope, path in path_of.items() if op.name.startswith(scope)), '')
        if not path and set(kinds) <= _OWN_STATEFUL:
            continue
        raise impure(path or f'cell {cell.index}', op)
