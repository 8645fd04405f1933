"""Training graph: the whole step for mini-batches of one shape, as one graph.

    'train', 'timed'    tasks of every replica -> sums over replicas -> update of every replica
    'accumulate'        tasks of every replica
"""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, TypeAlias

import tensorflow as tf

from lingpipe.cluster import HOME
from lingpipe.layers import nested
from lingpipe.layers.nested import Nested
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.alike_layers import AlikeLayers
from lingpipe.pipeline.execution.compiled_pipeline import CompiledPipeline
from lingpipe.pipeline.execution.compiled_shape import CompiledShape
from lingpipe.pipeline.execution.stamps import Stamps, UpdatePart
from lingpipe.pipeline.execution.step_graph import add_tasks
from lingpipe.pipeline.execution.update import Update
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.execution.wire import Wire
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.pipeline.replication.handing_round import hand_round
from lingpipe.pipeline.replication.replicas import Replica, reduce

Kind: TypeAlias = Literal['train', 'timed', 'accumulate']
Step: TypeAlias = tf.types.experimental.ConcreteFunction


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
    replicas = [Replica(r, cells, variables[r], pipelines[r].accumulators)
                for r, cells in enumerate(plan.replicas)]
    alike = AlikeLayers()
    updates = [
        Update(one.cells, one.accumulators, one.placed, learner, alike) for one in replicas]
    return TrainedReplicas(replicas, updates, plan.params.replica_reduction)


def build_step(kind: Kind, shape: CompiledShape, trained: TrainedReplicas,
               reached: frozenset[str], wire: Wire, has_gradients: bool = False) -> Step:
    """Builds a function of the leaves of a mini-batch, the step and the first micro-batch.

    Args:
      kind: 'accumulate' only runs the tasks; 'timed' also returns their stamps.
      shape: the compiled shape of the mini-batch.
      trained: the replicas to update.
      reached: paths of the weights that have a gradient in this mini-batch or one of those
        accumulated before it.
      wire: what carries values between a replica's devices.
      has_gradients: whether it also returns the 'gradients' of the first replica, by path.
    """
    specs = [*nested.leaves(dict(shape.batch_spec)), tf.TensorSpec([], tf.int64),
             tf.TensorSpec([], tf.int32)]

    def body(*args: tf.Tensor) -> dict[str, Nested]:
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

        results = _add_update(trained, last, step, reached, stamps, has_gradients)
        if stamps is not None:
            results['stamps'] = stamps.stacked(shape.pipelines[0])
        return results

    return tf.compat.v1.wrap_function(body, specs)


def _add_update(trained: TrainedReplicas, last: Sequence[Sequence[tf.Operation]], step: tf.Tensor,
                reached: frozenset[str], stamps: Stamps | None, has_gradients: bool
                ) -> dict[str, Nested]:
    """Adds all that follows the last ops of the cells, [R, K], and returns the step's results."""
    last = _reduced(trained, last, stamps)
    foreign = [update.gradients.foreign(ops)
               for update, ops in zip(trained.updates, last, strict=True)]
    first = trained.updates[0]
    decision = first.decide(last[0], foreign[0], step, reached, stamps)
    results: dict[str, Nested] = dict(decision.results)
    if has_gradients:   # They are read before the update resets the accumulators.
        gradients, read = first.read_gradients(decision, last[0], foreign[0], reached)
        results['gradients'], last = gradients, [read, *last[1:]]
    updated = [update.apply(decision, ops, gradients, reached, None if r else stamps)
               for r, (update, ops, gradients) in enumerate(
                   zip(trained.updates, last, foreign, strict=True))]
    done = hand_round(trained.replicas, updated)

    with tf.device(HOME), tf.control_dependencies(done):   # A worker leaks for each later fetch.
        return {name: nested.map_leaves(tf.identity, value) for name, value in results.items()}


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
