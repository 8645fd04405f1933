"""Adapted weights: those of a network whose projections have adapters, as other programs hold them.

What has to be computed is computed when it is written, so that no second copy of all weights is in
memory.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from lingpipe.layers.base import Layer
from lingpipe.layers.low_rank import LowRank, adapters_of


@dataclasses.dataclass(frozen=True)
class Computed:
    """A weight that is computed when it is asked for; it stands where a tensor may.

    Attributes:
      shape: of the weight.
      numpy: returns its value, float32.
    """
    shape: tf.TensorShape
    numpy: Callable[[], np.ndarray]


def merged(network: Layer, weights: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor | Computed]:
    """Returns the weights of the network without adapters that computes the same.

    Args:
      network: may have adapters.
      weights: its own, by path.
    """
    without: dict[str, tf.Tensor | Computed] = dict(weights)
    for path, adapter in adapters_of(network):
        a, b = (without.pop(weight.path) for weight in adapter.weights())
        without[path] = _sum(weights[path], a, b, adapter)
    return without


def _sum(w: tf.Tensor, a: tf.Tensor, b: tf.Tensor, adapter: LowRank) -> Computed:
    """w and what the adapter with the weights a and b adds to it."""
    return Computed(w.shape, lambda: w.numpy() + adapter.scale * (a.numpy() @ b.numpy()))
