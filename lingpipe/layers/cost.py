"""Cost: what a layer takes, known before any variable exists."""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a layer takes for one batch of given shapes.

    What it keeps from the forward to the backward pass is not declared here but found by tracing:
    see pricing/residuals.py.

    Attributes:
      flops: floating point operations of the forward pass. A multiply-add counts 2, an exp or a
        division 1.
      num_weights: trainable scalars. Moving averages do not count, as in the papers, where a
        parameter is a kernel, bias, scale or offset, and weights that adapters stand in for do not.
      outputs: what fprop returns, with tf.TensorSpec in place of tensors.
    """
    flops: float
    num_weights: int
    outputs: Any = None

    def __add__(self, other: Cost) -> Cost:
        """The cost of this layer followed by the other, whose outputs they are."""
        return Cost(self.flops + other.flops, self.num_weights + other.num_weights, other.outputs)


def total(costs: Sequence[Cost]) -> Cost:
    """The sum of costs, without outputs."""
    return Cost(sum(cost.flops for cost in costs), sum(cost.num_weights for cost in costs))
