"""Cell trace: traces a cell once, and cuts it into its forward and backward tasks.

The obvious way is a tape around the forward function of every cell. It fails here in three ways:
gradients of values with many readers are summed in an order that depends on where the cells end;
gradient ops are placed on the device of the caller; and all gradients of a cell exist at once
before they are added to the accumulators. Instead, a cell is traced once, forward and backward,
with a tape around each layer by itself, in one graph:

    read weights -> layer 0 -> layer 1 -> ... -> outputs, emissions added to accumulators
                                                                      (the forward task's fetches)
    gradients of the outputs -> ... -> layer 1' -> layer 0' -> gradients of the inputs
                                          |           |              (the backward task's fetches)
                                          accumulator += gradient, in place, as soon as it is made

A task is a part of that graph (graph_cutting.py), so F and B of every recomputation mode come from
the same ops:

    none    F returns those of its tensors that B needs (the residuals), and B starts from them.
    cell    B is the whole graph: it runs the cell again from the cell's inputs.
    layer   like cell, but B keeps only the inputs of the layers while it runs the cell again. Then
            each layer in turn runs once more for its gradient.

Tasks read weights and add to accumulators, so they are stateful. TensorFlow does not chain them
all, because neither they nor the step have automatic control dependencies: the schedule gives the
order.

The forward is traced first (forward_trace.py). It shows what the cell emits, so that accumulators
can be made before the rest is traced into the same graph (`trace_cell`).
"""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from lingpipe.pipeline.execution.backward_trace import Sums, token_after, trace_backward
from lingpipe.pipeline.execution.compiled_task import CompiledTask
from lingpipe.pipeline.execution.emission_layout import EmissionLayout
from lingpipe.pipeline.execution.forward_trace import ForwardTrace
from lingpipe.pipeline.execution.graph_cutting import Subgraphs
from lingpipe.pipeline.execution.stateful_ops import refuse_stateful
from lingpipe.pipeline.execution.task_cutting import Part, TaskCutter
from lingpipe.pipeline.planning.cell import Leaf
from lingpipe.pricing import residual_tensors


@dataclasses.dataclass(frozen=True, eq=False)
class CellTrace:
    """The result of tracing a cell.

    Attributes:
      forward: the forward task; None if the backward task contains it.
      backward: the backward task; None if nothing in the cell has a gradient.
      layout: the layout of what the cell emits.
      remarks: names of the ops that print or check an assertion.
    """
    forward: CompiledTask | None
    backward: CompiledTask | None
    layout: EmissionLayout
    remarks: tuple[str, ...]

    @property
    def gradients_out(self) -> Sequence[Leaf]:
        """The leaves of inputs whose gradients go to earlier cells."""
        return self.backward.gradients_out if self.backward else ()

    @property
    def tasks(self) -> dict[str, CompiledTask]:
        """Kind of a slot -> the task that it calls."""
        tasks = {'F': self.forward, 'B': self.backward}
        return {kind: task for kind, task in tasks.items() if task is not None}


def trace_cell(forward: ForwardTrace, sums: Sums, gradients_in: Sequence[Leaf] = (),
               is_fused: bool = False) -> CellTrace:
    """Traces the rest of a cell and cuts the graph into tasks.

    Args:
      forward: the cell, traced forward.
      sums: where the tasks add emissions, with the layout `forward.layout`, and gradients.
      gradients_in: the leaves (of inputs and outputs) for which later cells have a gradient.
      is_fused: whether forward and backward are one task, as in the last cell of training: the
        backward task then computes the loss and the emissions too.

    Raises:
      ValueError: a layer contains a stateful op.
    """
    graph = forward.graph
    with graph.as_default():
        arguments = forward.arguments.with_gradients(gradients_in)
        added = sums.add_emissions(forward.emissions)
        # Ops that print or check an assertion have no readers, so only the token makes them run.
        forward_token = token_after([*added, *forward.remarks], 'forward_token')
        backward = trace_backward(forward, sums, arguments.gradients)
        both_token = token_after([forward_token, backward.token], 'token')
    refuse_stateful(forward.cell, graph)

    cut = TaskCutter(forward, arguments, Subgraphs(graph))
    first = Part(forward_token, outputs=forward.outputs)
    second = Part(backward.token, gradients=backward.gradients,
                  differentiated=backward.differentiated)
    remarks = tuple(op.name for op in forward.remarks)
    if is_fused:
        both = dataclasses.replace(second, token=both_token, outputs=forward.outputs)
        return CellTrace(None, cut.task(both), forward.layout, remarks)
    if not forward.cell.has_backward or not forward.options.training:
        return CellTrace(cut.task(first), None, forward.layout, remarks)

    residuals: list[tf.Tensor] = []
    if forward.options.mode(forward.cell) == 'none':
        residuals = residual_tensors(first.fetches, second.fetches, arguments.all,
                                     arguments.of_micro_batch)
    return CellTrace(cut.task(dataclasses.replace(first, residuals_out=residuals)),
                     cut.task(dataclasses.replace(second, residuals_in=residuals)),
                     forward.layout, remarks)
