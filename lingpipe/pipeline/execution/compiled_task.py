"""Compiled task: the traced function that runs one kind of task of a cell."""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import tensorflow as tf

from lingpipe.pipeline.execution.cast_weights import NarrowWeight
from lingpipe.pipeline.planning.cell import Leaf


@dataclasses.dataclass(frozen=True, eq=False)
class CompiledTask:
    """One function of a cell, with its arguments and results in order.

    It returns the outputs, the gradients, the residuals and, as the last result, a token.

    Attributes:
      function: a tf.function that is never inlined. It takes the step, the index of the micro-batch
        and the tensors of the five attributes that follow, in that order.
      inputs: leaves of the values that it reads.
      shared: paths of the weights that it reads and other cells own.
      casts: weights that it uses in a narrower dtype, once for each use.
      gradients_in: leaves for which it takes the sum of gradients so far.
      residuals_in: names of tensors that it takes from earlier tasks of the cell.
      outputs: leaves of the values that it writes for other cells.
      gradients_out: leaves for which it returns the sum of gradients so far.
      residuals_out: names of tensors that it returns for later tasks of the cell.
      held_bytes: of a task that is not the first of a micro-batch: the bytes of inputs and
        residuals, which are held until it runs. Memory that they share counts once.
      handed_bytes: the bytes of the tensors that it returns for later tasks of the cell, besides
        those that were held before.
      differentiated: paths of the weights (as used, not as owned) whose gradients it computes.
      scopes: where the function is that of a cell that is alike: the name scope of each of that
        cell's layers -> the scope of the layer in its place.
    """
    function: tf.types.experimental.ConcreteFunction
    inputs: Sequence[Leaf]
    shared: Sequence[str]
    casts: Sequence[NarrowWeight]
    gradients_in: Sequence[Leaf]
    residuals_in: Sequence[str]
    outputs: Sequence[Leaf]
    gradients_out: Sequence[Leaf]
    residuals_out: Sequence[str]
    held_bytes: int = 0
    handed_bytes: int = 0
    differentiated: Sequence[str] = ()
    scopes: Mapping[str, str] = dataclasses.field(default_factory=dict)
