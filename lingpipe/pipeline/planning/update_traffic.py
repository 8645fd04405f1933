"""Update traffic: the bytes that the update of a layer moves, and those of its gradients."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import tensorflow as tf

from lingpipe.pipeline.planning.dataflow import Element


class UpdateTraffic(NamedTuple):
    """What a layer trains: the bytes of its gradients, and those that its update moves."""
    gradient_bytes: int
    update_bytes: int


def update_traffic(element: Element, slot_bytes: Callable[[tf.DType], int]) -> UpdateTraffic:
    """The traffic of a layer: an update reads and writes weights, gradients and slots.

    Args:
      element: the layer.
      slot_bytes: as of `make_plan`.
    """
    gradient_bytes = sum(w.size * max(4, w.dtype.size) for w in element.trained)
    other_bytes = sum(w.size * (w.dtype.size + slot_bytes(w.dtype)) for w in element.trained
                      if w.shared_with is None)
    return UpdateTraffic(gradient_bytes, 2 * (gradient_bytes + other_bytes))


def total_traffic(of_layers: Iterable[UpdateTraffic]) -> UpdateTraffic:
    """What some layers train together."""
    layers = list(of_layers)
    return UpdateTraffic(sum(layer.gradient_bytes for layer in layers),
                         sum(layer.update_bytes for layer in layers))
