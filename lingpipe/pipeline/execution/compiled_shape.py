"""CompiledShape: the traced cells of all replicas, for mini-batches of one shape."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence

import tensorflow as tf

from lingpipe.layers import nested
from lingpipe.layers.nested import Nested
from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.alike_cells import TracedCell
from lingpipe.pipeline.execution.batch_source import BatchesByHost
from lingpipe.pipeline.execution.compiled_pipeline import CompiledPipeline, compile_pipeline
from lingpipe.pipeline.execution.emission_layout import EmissionLayout
from lingpipe.pipeline.execution.forward_trace import TracingOptions
from lingpipe.pipeline.execution.gradients import reached_weights
from lingpipe.pipeline.execution.mean_weight import MeanWeight, asked_for
from lingpipe.pipeline.execution.task_values import ReplicaBatch
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.pipeline.replication.replicas import groups_of


@dataclasses.dataclass(frozen=True, eq=False)
class CompiledShape:
    """The compiled parts of the step for mini-batches of one shape.

    Attributes:
      batch_spec: name -> nested tf.TensorSpec of a mini-batch.
      pipelines: [R].
      mean_weight: computes Context.mean_weight; None if no task uses it.
      reached: paths of the owned weights that have a gradient.
      waits: whether tasks wait for those of other replicas.
    """
    batch_spec: Mapping[str, Nested]
    pipelines: Sequence[CompiledPipeline]
    mean_weight: MeanWeight | None
    reached: frozenset[str]
    waits: bool

    def split(self, batches: BatchesByHost, step: tf.Tensor,
              first_micro_batch: tf.Tensor) -> list[ReplicaBatch]:
        """Splits a mini-batch into the inputs of all replicas, [R], in a graph or eagerly.

        Args:
          batches: nested tensors by name, at every host that has the mini-batch. The first host
            computes the mean weight.
          step: int64 scalar, the number of earlier updates.
          first_micro_batch: int32 scalar, the index of the first micro-batch among those that are
            accumulated for one update.
        """
        num_replicas = len(self.pipelines)
        num_micro_batches = self.pipelines[0].schedule.num_micro_batches
        first_host = next(iter(batches))
        with tf.device(first_host):
            mean_weight = self.mean_weight and self.mean_weight.of(
                dict(batches[first_host]), num_replicas * num_micro_batches)

        parts: dict[str, list[list[tf.Tensor]]] = {}
        for host, batch in batches.items():
            with tf.device(host):
                parts[host] = [tf.split(tensor, num_replicas)
                               for tensor in nested.leaves(dict(batch))]
        return [
            ReplicaBatch({host: nested.pack_like(dict(batch), [part[r] for part in parts[host]])
                          for host, batch in batches.items()},
                         step, first_micro_batch + r * num_micro_batches, mean_weight)
            for r in range(num_replicas)]


def compile_shape(batch_spec: Mapping[str, Nested], plan: Plan, variables: Sequence[Variables],
                  seed: int, accumulators: Sequence[Sequence[Accumulators]] = (),
                  gradient_rows: Mapping[str, int] | None = None) -> CompiledShape:
    """Traces the cells of all replicas.

    Args:
      batch_spec: name -> nested tf.TensorSpec of a mini-batch.
      plan: for mini-batches of that shape.
      variables: [R].
      seed: the seed of the experiment.
      accumulators: [R][K], if an earlier shape has made them; if empty, they are created.
      gradient_rows: path of a weight -> the most rows that a mini-batch of any shape has; see
        Element.gradient_rows.

    Raises:
      ValueError: the accumulators do not match what the cells emit.
    """
    params = plan.params

    def new_accumulators(cell: Cell, layout: EmissionLayout) -> Accumulators:
        trained = [weight for element in cell.elements for weight in element.trained]
        return Accumulators(cell.device, trained, layout, params.num_micro_batches,
                            params.sum_groups, gradient_rows)

    def accumulators_of(replica: int) -> Callable[[Cell, EmissionLayout], Accumulators]:
        return lambda cell, layout: _checked(accumulators[replica][cell.index], layout, cell)

    options = TracingOptions(True, seed, plan.forecast.recomputation, params.jit_compile)
    groups = groups_of(plan.replicas)
    waits = params.cross_replica_batch_norm and params.num_replicas > 1
    templates: dict[Hashable, TracedCell] = {}  # Replicas are alike too.
    pipelines = [
        compile_pipeline(plan.schedule, cells, variables[r], options,
                         accumulators_of(r) if accumulators else new_accumulators,
                         {group.cell: group.gatherer(r) for group in groups} if waits else None,
                         templates)
        for r, cells in enumerate(plan.replicas)]
    tasks = pipelines[0].tasks
    mean_weight = MeanWeight(plan.elements, training=True) if asked_for(tasks.values()) else None
    return CompiledShape(batch_spec, pipelines, mean_weight, reached_weights(plan.cells, tasks),
                         waits)


def _checked(accumulators: Accumulators, layout: EmissionLayout, cell: Cell) -> Accumulators:
    if accumulators.layout != layout:
        raise ValueError(
            f'cell {cell.index} ({cell.elements[0].layer.path} .. {cell.elements[-1].layer.path}) '
            f'emits {layout} for mini-batches of one shape and {accumulators.layout} for those of '
            f'another; layers must emit the same, in the same shapes, for all of them.')
    return accumulators
