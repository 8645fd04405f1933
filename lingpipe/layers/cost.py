"""Cost: what a layer takes, known before any variable exists."""
from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a layer takes for one batch of the shapes it was asked about.

    What it keeps from forward to backward is not said but found: see pricing/residuals.py.

    Attributes:
      flops: floating point operations of the forward pass; a multiply-add counts 2, an exp or a divide 1.
      num_weights: trainable scalars; moving averages are not counted (papers: a parameter is a kernel, bias, scale or offset).
      outputs: what fprop returns, with tf.TensorSpec in place of tensors.
    """
    flops: float
    num_weights: int
    outputs: Any = None

    def __add__(self, other: Cost) -> Cost:
        """The cost of this layer and then the other; the outputs are the other's."""
        return Cost(self.flops + other.flops, self.num_weights + other.num_weights, other.outputs)


def total(costs: list[Cost]) -> Cost:
    """The sum of costs, without outputs."""
    return Cost(sum(c.flops for c in costs), sum(c.num_weights for c in costs))
