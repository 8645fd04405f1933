"""Update traffic: the bytes that the update of a layer moves, and those of its gradients."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import tensorflow as tf

from lingpipe.pipeline.planning.dataflow import Element
from lingpipe.pipeline.planning.hardware import Hardware


class UpdateTraffic(NamedTuple):
    """What a layer trains, and what of it an update moves.

    Attributes:
      gradient_bytes: of its gradients.
      state_bytes: of gradients, weights and slots.
      update_bytes: what its update moves.
      num_weights: how many tensors it trains.
    """
    gradient_bytes: int
    state_bytes: int
    update_bytes: int
    num_weights: int

    def update_s(self, hardware: Hardware) -> float:
        """Seconds of the update on a device."""
        return (self.update_bytes / hardware.memory_bytes_per_s
                + self.num_weights * hardware.weight_s)


def update_traffic(element: Element, slot_bytes: Callable[[tf.DType], int]) -> UpdateTraffic:
    """The traffic of a layer.

    Weights and slots are read and written. A gradient is read for its norm, read and written when
    it is divided by the weight of the mini-batch, read by the optimizer, and set to 0.

    Args:
      element: the layer.
      slot_bytes: as of `make_plan`.
    """
    gradient_bytes = sum(w.size * max(4, w.dtype.size) for w in element.trained)
    other_bytes = sum(w.size * (w.dtype.size + slot_bytes(w.dtype)) for w in element.trained
                      if w.shared_with is None)
    return UpdateTraffic(gradient_bytes, gradient_bytes + other_bytes,
                         5 * gradient_bytes + 2 * other_bytes, len(element.trained))


def total_traffic(of_layers: Iterable[UpdateTraffic]) -> UpdateTraffic:
    """What some layers train together."""
    layers = list(of_layers)
    return UpdateTraffic(*(sum(amounts) for amounts in zip((0,) * 4, *layers, strict=True)))
