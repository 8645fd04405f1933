"""Sharded variables: the variables of all replicas, each with the slots that it keeps."""
from __future__ import annotations

from collections.abc import Callable

from lingpipe.layers.base import Layer
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.variables import TO_TRAIN, Contents, Variables
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.pipeline.planning.slot_shares import replica_of_weights


def placed_replicas(plan: Plan, network: Layer, learner: Learner, seed: int,
                    contents: Contents = TO_TRAIN) -> list[Variables]:
    """Creates the variables of all replicas, [R].

    With PipelineParams.shard_slots, each keeps the slots and averages of the weights that it
    updates, and the first one knows those of the others too. Otherwise each keeps all.
    """
    if not plan.params.shard_slots:
        return [Variables(network, cells, learner, seed, contents=contents)
                for cells in plan.replicas]

    replica_of = replica_of_weights(plan.cells, learner.slot_bytes, len(plan.replicas))

    def shares_of(replica: int) -> Callable[[str], bool]:
        return lambda path: replica_of[path] == replica

    others = [Variables(network, cells, learner, seed, shares_of(r), contents=contents)
              for r, cells in enumerate(plan.replicas[1:], start=1)]
    first = Variables(network, plan.replicas[0], learner, seed, shares_of(0), others, contents)
    return [first, *others]
