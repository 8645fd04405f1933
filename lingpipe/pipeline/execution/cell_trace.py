"""Cell trace: traces a cell once, and cuts it into its tasks.

The obvious way is a tape around the forward function of every cell. It fails here in three ways:
gradients of values with many readers are summed in an order that depends on where the cells end;
gradient ops are placed on the device of the caller; and all gradients of a cell exist at once
before they are added to the accumulators. Instead, a cell is traced once, forward and backward,
with a tape around each layer by itself, in one graph:

    read weights -> layer 0 -> layer 1 -> ... -> outputs, emissions added to accumulators   (F)

    gradients of the outputs -> ... -> layer 1' -> layer 0' -> gradients of the inputs      (B)
                                          |           |
                                          accumulator += gradient, in place                 (B or W)

A task is a part of that graph (cell_parts.py), so all tasks of every recomputation mode come from
the same ops.

Tasks read weights and add to accumulators, so they are stateful. TensorFlow does not chain them
all, because neither they nor the step have automatic control dependencies: the schedule gives the
order.

The forward is traced first (forward_trace.py). It shows what the cell emits, so that accumulators
can be made before the rest is traced into the same graph (`trace_cell`).
"""
from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from lingpipe.pipeline.execution.backward_trace import Sums, token_after, trace_backward
from lingpipe.pipeline.execution.cast_weights import cast_weights
from lingpipe.pipeline.execution.cell_parts import CellParts
from lingpipe.pipeline.execution.compiled_task import CompiledTask
from lingpipe.pipeline.execution.emission_layout import EmissionLayout
from lingpipe.pipeline.execution.forward_trace import ForwardTrace
from lingpipe.pipeline.execution.graph_cutting import Subgraphs
from lingpipe.pipeline.execution.stateful_ops import refuse_stateful
from lingpipe.pipeline.execution.task_cutting import Part, TaskCutter
from lingpipe.pipeline.planning.cell import Leaf


@dataclasses.dataclass(frozen=True, eq=False)
class CellTrace:
    """The result of tracing a cell.

    Attributes:
      tasks: Schedule.task_kind of a slot -> the task that it calls.
      gradients_out: the leaves of inputs whose gradients go to earlier cells.
      layout: the layout of what the cell emits.
      remarks: names of the ops that print or check an assertion.
    """
    tasks: Mapping[str, CompiledTask]
    gradients_out: Sequence[Leaf]
    layout: EmissionLayout
    remarks: tuple[str, ...]


def trace_cell(forward: ForwardTrace, sums: Sums, gradients_in: Sequence[Leaf],
               kinds: Collection[str]) -> CellTrace:
    """Traces the rest of a cell and cuts the graph into tasks.

    Args:
      forward: the cell, traced forward.
      sums: where the tasks add emissions, with the layout `forward.layout`, and gradients.
      gradients_in: the leaves (of inputs and outputs) for which later cells have a gradient.
      kinds: the kinds of tasks to make, as in Schedule.task_kind. Without 'F', as in the last cell
        of training, B is forward and backward: it computes the loss and the emissions too.

    Raises:
      ValueError: a layer contains a stateful op.
    """
    graph, is_fused = forward.graph, 'F' not in kinds
    with graph.as_default():
        arguments = forward.arguments.with_gradients(gradients_in)
        added = sums.add_emissions(forward.emissions)
        # Ops that print or check an assertion have no readers, so only the token makes them run.
        forward_token = token_after([*added, *forward.remarks], 'forward_token')
        backward = trace_backward(forward, sums, arguments.gradients)
        inputs_token = token_after([forward_token] if is_fused else [], 'inputs_token')
        whole_token = token_after([inputs_token, backward.token], 'token')
    refuse_stateful(forward.cell, graph)
    arguments = arguments.with_casts(cast_weights(graph, forward.weights_by_owner))

    inputs = Part(inputs_token, outputs=forward.outputs if is_fused else {},
                  gradients=backward.gradients)
    parts = CellParts(
        cutter=TaskCutter(forward, arguments, Subgraphs(graph, backward.waits)),
        forward=Part(forward_token, outputs=forward.outputs),
        inputs=inputs,
        weights=Part(backward.token, differentiated=backward.differentiated),
        written=backward.written,
        whole=dataclasses.replace(inputs, token=whole_token,
                                  differentiated=backward.differentiated))
    return CellTrace(
        tasks=parts.tasks(kinds),
        gradients_out=[] if set(kinds) == {'F'} else list(backward.gradients),
        layout=forward.layout,
        remarks=tuple(op.name for op in forward.remarks))
