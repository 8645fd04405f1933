"""Compiled pipeline: all cells of one replica, traced for mini-batches of one shape."""
from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence

import tensorflow as tf

from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.alike_cells import TracedCell, likeness
from lingpipe.pipeline.execution.cell_trace import CellTrace, trace_cell
from lingpipe.pipeline.execution.compiled_task import CompiledTask
from lingpipe.pipeline.execution.emission_layout import EmissionLayout
from lingpipe.pipeline.execution.forward_trace import TracingOptions, trace_forward
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.planning.cell import Cell, Leaf, leaves_of
from lingpipe.pipeline.planning.schedule import Schedule, Slot

Gather = Callable[[tf.Tensor], tf.Tensor]


@dataclasses.dataclass(frozen=True, eq=False)
class CompiledPipeline:
    """The parts of one replica's step.

    Attributes:
      schedule: the order of slots on each device.
      cells: [K].
      traces: [K] the trace of each cell.
      accumulators: [K] the accumulators to which each cell's tasks add.
      read_shared: makes the op that reads a weight on the device of its owner.
    """
    schedule: Schedule
    cells: Sequence[Cell]
    traces: Sequence[CellTrace]
    accumulators: Sequence[Accumulators]
    read_shared: Callable[[str], tf.Tensor]

    @property
    def tasks(self) -> dict[tuple[str, int], CompiledTask]:
        """(Schedule.task_kind of a slot, k) -> compiled task."""
        return {(kind, cell.index): task
                for cell, trace in zip(self.cells, self.traces, strict=True)
                for kind, task in trace.tasks.items()}

    def calls(self) -> list[tuple[CompiledTask, int]]:
        """Returns all compiled tasks, each with the number of its calls in a step."""
        schedule = self.schedule
        num_calls = collections.Counter(
            (schedule.task_kind(slot), slot.cell) for slots in schedule.devices for slot in slots)
        return [(task, num_calls[key]) for key, task in self.tasks.items()]

    def task_of(self, slot: Slot) -> CompiledTask:
        """The compiled task that a slot calls."""
        return self.traces[slot.cell].tasks[self.schedule.task_kind(slot)]


def compile_pipeline(schedule: Schedule, cells: Sequence[Cell], variables: Variables,
                     options: TracingOptions,
                     accumulators_of: Callable[[Cell, EmissionLayout], Accumulators],
                     gathers: Mapping[int, Gather] | None = None,
                     templates: dict[Hashable, TracedCell] | None = None,
                     weights: dict[str, tf.Variable] | None = None) -> CompiledPipeline:
    """Traces all cells, the last first, since a cell must know which gradients later cells compute.

    Args:
      schedule: the order of slots on each device.
      cells: [K].
      variables: of the replica.
      options: how cells are traced.
      accumulators_of: returns the accumulators for a cell whose emissions have a given layout.
      gathers: k -> Context.gather; None if no layer exchanges values with other replicas.
      templates: likeness -> a cell that has been traced with the same options; those that are
        traced here are added.
      weights: path -> the variable that layers read; default: the weights themselves in training,
        and otherwise what `variables.averaged` returns.
    """
    templates = {} if templates is None else templates
    if weights is None:
        weights = variables.weights if options.training else variables.averaged()
    traces: list[CellTrace] = []
    accumulators: list[Accumulators] = []
    available: set[Leaf] = set()
    for cell in reversed(cells):
        gradients_in = [leaf for leaf in leaves_of([*cell.inputs, *cell.outputs])
                        if leaf in available]
        kinds, read = schedule.task_kinds(cell.index), variables.read_by(cell, weights)
        elsewhere = variables.elsewhere(cell, weights)
        key = likeness(cell, gradients_in, kinds, options, read, elsewhere)
        template = templates.get(key)
        if template is not None:
            accumulators.append(accumulators_of(cell, template.layout_of(cell)))
            traces.append(template.trace_of(cell, [*read, *accumulators[-1].variables()]))
        else:
            gather = gathers[cell.index] if gathers else None
            forward = trace_forward(cell, variables.reader(cell, weights), options, gather,
                                    elsewhere)
            accumulators.append(accumulators_of(cell, forward.layout))
            traces.append(trace_cell(forward, accumulators[-1], gradients_in, kinds))
            traced = TracedCell(forward, traces[-1], [*read, *accumulators[-1].variables()])
            if traced.is_template and gather is None and not options.is_compiled_by_xla(cell):
                templates[key] = traced
        available.update(traces[-1].gradients_out)
    return CompiledPipeline(schedule, cells, traces[::-1], accumulators[::-1],
                            variables.shared_reader(weights))
