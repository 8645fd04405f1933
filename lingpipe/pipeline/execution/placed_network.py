"""Placed network: a network whose weights are on the devices of its cells."""
from __future__ import annotations

import dataclasses

from lingpipe.layers.sequential import Sequential
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.planning.plan import Plan


@dataclasses.dataclass(frozen=True, eq=False)
class PlacedNetwork:
    """Everything that an evaluation needs to know about a network in training.

    Attributes:
      network: the layers.
      variables: their weights.
      plan: the plan of training: which layers are in which cell, and where the cells are.
      seed: the seed of the experiment.
    """
    network: Sequential
    variables: Variables
    plan: Plan
    seed: int
