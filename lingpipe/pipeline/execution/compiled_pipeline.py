"""Compiled pipeline: all cells of a replica, traced for mini-batches of one shape."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.cell_trace import (
    CellTrace,
    TracingOptions,
    trace_cell,
    trace_forward,
)
from lingpipe.pipeline.execution.compiled_task import CompiledTask
from lingpipe.pipeline.execution.emission_layout import EmissionLayout
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.planning.cell import Cell, Leaf, leaves_of
from lingpipe.pipeline.planning.schedules import Schedule

Gather = Callable[[tf.Tensor], tf.Tensor]


@dataclasses.dataclass(frozen=True, eq=False)
class CompiledPipeline:
    """What the step of one replica is made of.

    Attributes:
      schedule: the order on each device.
      cells: [K].
      traces: [K] what tracing each cell has found.
      accumulators: [K] what its tasks add to.
      read_shared: makes the op that reads a weight, on the device of its owner.
    """
    schedule: Schedule
    cells: Sequence[Cell]
    traces: Sequence[CellTrace]
    accumulators: Sequence[Accumulators]
    read_shared: Callable[[str], tf.Tensor]

    @property
    def tasks(self) -> dict[tuple[str, int], CompiledTask]:
        """(kind, k) -> compiled task."""
        return {(kind, cell.index): task
                for cell, trace in zip(self.cells, self.traces, strict=True)
                for kind, task in trace.tasks.items()}


def compile_pipeline(schedule: Schedule, cells: Sequence[Cell], variables: Variables,
                     options: TracingOptions,
                     accumulators_of: Callable[[Cell, EmissionLayout], Accumulators],
                     gathers: Mapping[int, Gather] | None = None) -> CompiledPipeline:
    """Traces all cells, the last first: each tells those before it which gradients it gives.

    Args:
      schedule: the order on each device.
      cells: [K].
      variables: the weights. Without training, their moving averages are read, where there are any.
      options: how cells are traced.
      accumulators_of: what a cell that emits values of this layout adds to.
      gathers: k -> Context.gather, if there is any.
    """
    weights = variables.weights if options.training else variables.averaged()
    traces: list[CellTrace] = []
    accumulators: list[Accumulators] = []
    available: set[Leaf] = set()
    for cell in reversed(cells):
        gather = gathers[cell.index] if gathers else None
        forward = trace_forward(cell, variables.reader(cell, weights), options, gather)
        accumulators.append(accumulators_of(cell, forward.layout))
        gradients_in = [leaf for leaf in leaves_of([*cell.inputs, *cell.outputs])
                        if leaf in available]
        traces.append(trace_cell(forward, accumulators[-1], gradients_in,
                                 is_fused=options.training and cell is cells[-1]))
        available.update(traces[-1].gradients_out)
    return CompiledPipeline(schedule, cells, traces[::-1], accumulators[::-1],
                            variables.shared_reader(weights))
