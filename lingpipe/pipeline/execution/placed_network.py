"""Placed network: a network whose weights are on the devices of its cells."""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from lingpipe.layers.sequential import Sequential
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.planning.plan import Plan


@dataclasses.dataclass(frozen=True, eq=False)
class PlacedNetwork:
    """Everything that an evaluation needs to know about a network in training.

    Attributes:
      network: the layers.
      replicas: [R] their weights, slots and averages in every replica.
      plan: the plan of training: which layers are in which cell, and where the cells are.
      seed: the seed of the experiment.
    """
    network: Sequential
    replicas: Sequence[Variables]
    plan: Plan
    seed: int

    @property
    def variables(self) -> Variables:
        """Those of the first replica."""
        return self.replicas[0]

    def evaluated_on(self, replica: int) -> dict[str, tf.Variable]:
        """path -> the variable that an evaluation on a replica reads.

        This is the moving average where the learner keeps one, and the weight otherwise. With
        PipelineParams.shard_slots, another replica may keep the average.
        """
        own = self.replicas[replica]
        return {**own.weights, **self.variables.averages(), **own.averages()}
