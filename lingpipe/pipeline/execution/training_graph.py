"""Training graph: the whole step for mini-batches of one shape, as one graph.

    'train', 'timed'    tasks of every replica -> sums over replicas -> update of every replica
    'accumulate'        tasks of every replica
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import tensorflow as tf

from lingpipe.cluster import HOME
from lingpipe.layers import nested
from lingpipe.layers.nested import Nested
from lingpipe.pipeline.execution.batch_source import BatchSource
from lingpipe.pipeline.execution.compiled_shape import CompiledShape
from lingpipe.pipeline.execution.stamps import Stamps
from lingpipe.pipeline.execution.step_graph import add_tasks
from lingpipe.pipeline.execution.trained_replicas import TrainedReplicas
from lingpipe.pipeline.execution.wire import Wire
from lingpipe.pipeline.replication.handing_round import hand_round
from lingpipe.process.graph_lifetime import wrap_function

Kind: TypeAlias = Literal['train', 'timed', 'accumulate']
Step: TypeAlias = tf.types.experimental.ConcreteFunction


def build_step(kind: Kind, shape: CompiledShape, trained: TrainedReplicas,
               reached: frozenset[str], wire: Wire, source: BatchSource,
               has_gradients: bool) -> Step:
    """Builds a function of what `source` takes, the step and the first micro-batch.

    Args:
      kind: 'accumulate' only runs the tasks; 'timed' also returns their stamps.
      shape: the compiled shape of the mini-batch.
      trained: the replicas to update.
      reached: paths of the weights that have a gradient in this mini-batch or one of those
        accumulated before it.
      wire: what carries values between a replica's devices.
      source: where the mini-batch comes from.
      has_gradients: whether it also returns the 'gradients' of the first replica, by path.
    """
    specs = [*source.specs, tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int32)]

    def body(*args: tf.Tensor) -> dict[str, Nested]:
        """Runs the tasks of all replicas, then the update unless `kind` is 'accumulate'."""
        *of_source, step, first_micro_batch = args
        arrived = source.arrived(of_source)
        parts = shape.split(arrived.batches, step, first_micro_batch)
        stamps = Stamps(step) if kind == 'timed' else None   # of the first replica
        added = [add_tasks(pipeline, part, wire, None if r else stamps)
                 for r, (pipeline, part) in enumerate(zip(shape.pipelines, parts, strict=True))]
        last = [tasks.last for tasks in added]
        if kind == 'accumulate':
            with tf.control_dependencies([op for ops in last for op in ops]):
                return {'done': tf.constant(True), **arrived.results}

        results = arrived.results | _add_update(
            trained, last, step, reached, stamps, has_gradients)
        if stamps is not None:
            results['stamps'] = stamps.stacked(shape.pipelines[0])
        return results

    return wrap_function(body, specs)


def _add_update(trained: TrainedReplicas, last: Sequence[Sequence[tf.Operation]], step: tf.Tensor,
                reached: frozenset[str], stamps: Stamps | None, has_gradients: bool
                ) -> dict[str, Nested]:
    """Adds all that follows the last ops of the cells, [R, K], and returns the step's results."""
    last = trained.reduced(last, stamps)
    foreign = [update.gradients.foreign(ops)
               for update, ops in zip(trained.updates, last, strict=True)]
    first = trained.updates[0]
    decision = first.decide(last[0], foreign[0], step, reached, stamps)
    results: dict[str, Nested] = dict(decision.results)
    if has_gradients:   # They are read before the update resets the accumulators.
        gradients, read = first.gradients.means(
            decision.inverse_weight, last[0], foreign[0], reached)
        results['gradients'], last = gradients, [read, *last[1:]]
    updated = [update.apply(decision, ops, gradients, reached, None if r else stamps)
               for r, (update, ops, gradients) in enumerate(
                   zip(trained.updates, last, foreign, strict=True))]
    done = hand_round(trained.replicas, updated)

    with tf.device(HOME), tf.control_dependencies(done):   # A worker leaks for each later fetch.
        return {name: nested.map_leaves(tf.identity, value) for name, value in results.items()}
