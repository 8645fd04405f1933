"""Trained replicas: what the steps of all shapes of mini-batches update."""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from lingpipe import cluster
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.alike_layers import AlikeLayers
from lingpipe.pipeline.execution.compiled_pipeline import CompiledPipeline
from lingpipe.pipeline.execution.stamps import Stamps, UpdatePart
from lingpipe.pipeline.execution.update import Update
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.pipeline.replication.replicas import Replica, reduce


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

    def reduced(self, last: Sequence[Sequence[tf.Operation]],
                stamps: Stamps | None) -> list[list[tf.Operation]]:
        """Sums over replicas, and returns [R, K] the ops after which the sums are there.

        Args:
          last: [R, K] the last ops of the cells.
          stamps: record when the sums of the first replica are made; None if they are not timed.
        """
        if stamps is None or len(self.replicas) == 1:
            return reduce(self.replicas, last, self.reduction)

        # The sums of a cell begin when its own tasks are done, and may wait for other replicas.
        cells = self.replicas[0].cells
        starts = [stamps.start(UpdatePart('sums', cell.index), cell.device, [op], [])
                  for cell, op in zip(cells, last[0], strict=True)]
        reduced = reduce(self.replicas, [starts, *last[1:]], self.reduction)
        ends = [stamps.end(UpdatePart('sums', cell.index), cell.device, [op])
                for cell, op in zip(cells, reduced[0], strict=True)]
        return [ends, *reduced[1:]]


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
    kinds = {cluster.place(cell.device)[2] for one in replicas for cell in one.cells}
    # On a CPU, XLA's code for an update is slower than TensorFlow's operations.
    alike = AlikeLayers(plan.params.jit_compile and 'CPU' not in kinds)
    updates = [
        Update(one.cells, one.accumulators, one.placed, learner, alike) for one in replicas]
    return TrainedReplicas(replicas, updates, plan.params.replica_reduction)
