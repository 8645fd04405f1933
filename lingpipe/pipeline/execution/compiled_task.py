"""Compiled task: the traced function that runs one kind of task of a cell."""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from lingpipe.pipeline.planning.cell import Leaf


@dataclasses.dataclass(frozen=True, eq=False)
class CompiledTask:
    """What one function of a cell takes and gives, in order.

    It gives the outputs, the gradients, the residuals and, at the end, a token.

    Attributes:
      function: a not-inlined tf.function of the step, the index of the micro-batch and the tensors
        of everything below, in that order.
      inputs: leaves of values.
      shared: paths of weights owned by other cells.
      gradients_in: leaves whose gradient so far it takes.
      num_residuals_in: tensors from the forward task, for a backward task.
      outputs: leaves of values it makes for others.
      gradients_out: leaves whose gradient so far it gives.
      num_residuals_out: tensors for the backward task.
      held_bytes: of a backward task, the bytes of inputs and residuals, which are held from the
        forward on; what they share counts once.
      differentiated: paths of the weights (as used, not as owned) that it makes gradients of.
    """
    function: tf.types.experimental.ConcreteFunction
    inputs: Sequence[Leaf]
    shared: Sequence[str]
    gradients_in: Sequence[Leaf]
    num_residuals_in: int
    outputs: Sequence[Leaf]
    gradients_out: Sequence[Leaf]
    num_residuals_out: int
    held_bytes: int = 0
    differentiated: Sequence[str] = ()
