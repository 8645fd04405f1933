"""Compiled task: the traced function that runs one kind of task of a cell, what it takes and what it gives."""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from lingpipe.pipeline.planning.cell import Leaf


@dataclasses.dataclass(frozen=True, eq=False)
class CompiledTask:
    """One compiled task: what it takes, in order, and what it gives, in order, before the residuals and a token.

    Attributes:
      function: a not-inlined tf.function of [step, micro_batch] + the tensors of everything below, in that order.
      inputs: leaves of values.
      shared: paths of weights owned by other cells.
      gradients_in: leaves whose gradient so far it takes.
      num_residuals_in: tensors from the forward task, for a backward task.
      outputs: leaves of values it makes for others.
      gradients_out: leaves whose gradient so far it gives.
      num_residuals_out: tensors for the backward task.
      held_bytes: of a backward task, the bytes of inputs and residuals, which are held from the forward on; what they share counts once.
      differentiated: paths of the weights (as used, not as owned) that it makes gradients of.
    """
    function: tf.types.experimental.ConcreteFunction
    inputs: list[Leaf]
    shared: list[str]
    gradients_in: list[Leaf]
    num_residuals_in: int
    outputs: list[Leaf]
    gradients_out: list[Leaf]
    num_residuals_out: int
    held_bytes: int = 0
    differentiated: Sequence[str] = ()
