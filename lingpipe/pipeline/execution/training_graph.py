"""Training graph: the whole step for mini-batches of one shape, as one graph.

    'train', 'timed'    tasks of every replica -> sums over replicas -> update of every replica
    'accumulate'        tasks of every replica
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import tensorflow as tf

from lingpipe.cluster import HOME
from lingpipe.layers import nested
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.compiled_pipeline import CompiledPipeline, compile_pipeline
from lingpipe.pipeline.execution.emission_layout import EmissionLayout
from lingpipe.pipeline.execution.forward_trace import TracingOptions
from lingpipe.pipeline.execution.gradients import reached_weights
from lingpipe.pipeline.execution.mean_weight import MeanWeight, asked_for
from lingpipe.pipeline.execution.stamps import Stamps, UpdatePart
from lingpipe.pipeline.execution.step_graph import add_tasks
from lingpipe.pipeline.execution.task_values import ReplicaBatch
from lingpipe.pipeline.execution.update import Update
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.execution.wire import Wire
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.pipeline.replication.replicas import Replica, groups_of, reduce

Kind: TypeAlias = Literal['train', 'timed', 'accumulate']
Step: TypeAlias = tf.types.experimental.ConcreteFunction


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
    batch_spec: Mapping[str, Any]
    pipelines: Sequence[CompiledPipeline]
    mean_weight: MeanWeight | None
    reached: frozenset[str]
    waits: bool

    def split(self, batch: Mapping[str, Any], step: tf.Tensor,
              first_micro_batch: tf.Tensor) -> list[ReplicaBatch]:
        """Splits a mini-batch into the inputs of all replicas, [R], in a graph or eagerly.

        Args:
          batch: nested tensors by name.
          step: int64 scalar, the number of earlier updates.
          first_micro_batch: int32 scalar, the index of the first micro-batch among those that are
            accumulated for one update.
        """
        num_replicas = len(self.pipelines)
        num_micro_batches = self.pipelines[0].schedule.num_micro_batches
        with tf.device(HOME):  # where the mini-batch is
            mean_weight = self.mean_weight and self.mean_weight.of(
                dict(batch), num_replicas * num_micro_batches)
            parts = [tf.split(tensor, num_replicas) for tensor in nested.leaves(dict(batch))]
        return [
            ReplicaBatch(nested.pack_like(dict(batch), [part[r] for part in parts]), step,
                         first_micro_batch + r * num_micro_batches, mean_weight)
            for r in range(num_replicas)]


def compile_shape(batch_spec: Mapping[str, Any], plan: Plan, variables: Sequence[Variables],
                  seed: int, accumulators: Sequence[Sequence[Accumulators]] = ()) -> CompiledShape:
    """Traces the cells of all replicas.

    Args:
      batch_spec: name -> nested tf.TensorSpec of a mini-batch.
      plan: for mini-batches of that shape.
      variables: [R].
      seed: the seed of the experiment.
      accumulators: [R][K], if an earlier shape has made them; if empty, they are created.

    Raises:
      ValueError: the accumulators do not match what the cells emit.
    """
    params = plan.params

    def new_accumulators(cell: Cell, layout: EmissionLayout) -> Accumulators:
        trained = [weight for element in cell.elements for weight in element.trained]
        return Accumulators(cell.device, trained, layout, params.num_micro_batches,
                            params.sum_groups)

    def accumulators_of(replica: int) -> Callable[[Cell, EmissionLayout], Accumulators]:
        return lambda cell, layout: _checked(accumulators[replica][cell.index], layout, cell)

    options = TracingOptions(True, seed, params.modes, params.jit_compile)
    groups = groups_of(plan.replicas)
    waits = params.cross_replica_batch_norm and params.num_replicas > 1
    pipelines = [
        compile_pipeline(plan.schedule, cells, variables[r], options,
                         accumulators_of(r) if accumulators else new_accumulators,
                         {group.cell: group.gatherer(r) for group in groups} if waits else None)
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


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedReplicas:
    """The replicas, which the steps of all shapes update.

    Attributes:
      replicas: [R].
      updates: [R].
      reduction: PipelineParams.replica_reduction.
    """
    replicas: Sequence[Replica]
    updates: Sequence[Update]
    reduction: str


def trained_replicas(plan: Plan, pipelines: Sequence[CompiledPipeline],
                     variables: Sequence[Variables], learner: Learner) -> TrainedReplicas:
    """Makes what the steps of all shapes update, once the first shape is compiled.

    Args:
      plan: for mini-batches of the first shape.
      pipelines: [R], with the accumulators that all shapes use.
      variables: [R].
      learner: makes the updates.
    """
    replicas = [
        Replica(r, cells, variables[r], pipelines[r].accumulators)
        for r, cells in enumerate(plan.replicas)]
    updates = [Update(one.cells, one.accumulators, one.placed, learner) for one in replicas]
    return TrainedReplicas(replicas, updates, plan.params.replica_reduction)


def build_step(kind: Kind, shape: CompiledShape, trained: TrainedReplicas,
               reached: frozenset[str], wire: Wire) -> Step:
    """Builds a function of the leaves of a mini-batch, the step and the first micro-batch.

    Args:
      kind: 'accumulate' only runs the tasks; 'timed' also returns their stamps.
      shape: the compiled shape of the mini-batch.
      trained: the replicas to update.
      reached: paths of the weights that have a gradient in this mini-batch or one of those
        accumulated before it.
      wire: what carries values between a replica's devices.
    """
    specs = [*nested.leaves(dict(shape.batch_spec)), tf.TensorSpec([], tf.int64),
             tf.TensorSpec([], tf.int32)]

    def body(*args: tf.Tensor) -> dict[str, tf.Tensor]:
        """Runs the tasks of all replicas, then the update unless `kind` is 'accumulate'."""
        *flat, step, first_micro_batch = args
        batch = nested.pack_like(dict(shape.batch_spec), flat)
        parts = shape.split(batch, step, first_micro_batch)
        stamps = Stamps(step) if kind == 'timed' else None   # of the first replica
        added = [add_tasks(pipeline, part, wire, None if r else stamps)
                 for r, (pipeline, part) in enumerate(zip(shape.pipelines, parts, strict=True))]
        last = [tasks.last for tasks in added]
        if kind == 'accumulate':
            with tf.control_dependencies([op for ops in last for op in ops]):
                return {'done': tf.constant(True)}

        results = _add_update(trained, last, step, reached, stamps)
        if stamps is not None:
            results['stamps'] = stamps.stacked(shape.pipelines[0])
        return results

    return tf.compat.v1.wrap_function(body, specs)


def _add_update(trained: TrainedReplicas, last: Sequence[Sequence[tf.Operation]], step: tf.Tensor,
                reached: frozenset[str], stamps: Stamps | None) -> dict[str, tf.Tensor]:
    """Adds all that follows the last ops of the cells, [R, K], and returns the step's results."""
    last = _reduced(trained, last, stamps)
    foreign = [update.gradients.foreign(ops)
               for update, ops in zip(trained.updates, last, strict=True)]
    decision = trained.updates[0].decide(last[0], foreign[0], step, reached, stamps)
    done = [tensor
            for r, (update, ops, gradients) in enumerate(
                zip(trained.updates, last, foreign, strict=True))
            for tensor in update.apply(decision, ops, gradients, reached, None if r else stamps)]

    first_device = trained.replicas[0].cells[0].device
    with tf.device(first_device), tf.control_dependencies(done):
        return {name: tf.identity(value) for name, value in decision.results.items()}


def _reduced(trained: TrainedReplicas, last: Sequence[Sequence[tf.Operation]],
             stamps: Stamps | None) -> list[list[tf.Operation]]:
    """Sums over replicas, and returns [R, K] the ops after which the sums are there."""
    if stamps is None or len(trained.replicas) == 1:
        return reduce(trained.replicas, last, trained.reduction)

    # The sums of a cell begin when its own tasks are done, and may wait for other replicas.
    cells = trained.replicas[0].cells
    starts = [stamps.start(UpdatePart('sums', cell.index), cell.device, [op], [])
              for cell, op in zip(cells, last[0], strict=True)]
    reduced = reduce(trained.replicas, [starts, *last[1:]], trained.reduction)
    ends = [stamps.end(UpdatePart('sums', cell.index), cell.device, [op])
            for cell, op in zip(cells, reduced[0], strict=True)]
    return [ends, *reduced[1:]]
