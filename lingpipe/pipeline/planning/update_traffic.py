"""Update traffic: the bytes that the update of a layer moves, and those of its gradients."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from lingpipe.layers.weight import Weight
from lingpipe.pipeline.planning.dataflow import Element
from lingpipe.pipeline.planning.hardware import Hardware
from lingpipe.pipeline.planning.slot_shares import slots_of


class UpdateTraffic(NamedTuple):
    """What a layer trains, and what of it an update moves.

    Attributes:
      gradient_bytes: of its gradients.
      state_bytes: of gradients, weights and slots.
      update_bytes: what its update moves.
      num_weights: how many tensors it trains.
      slot_bytes: of slots and averages, which are a part of state_bytes.
    """
    gradient_bytes: int
    state_bytes: int
    update_bytes: int
    num_weights: int
    slot_bytes: int = 0

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights that the layer owns and trains."""
        return self.state_bytes - self.gradient_bytes - self.slot_bytes

    def state_bytes_of_share(self, num_shares: int) -> float:
        """state_bytes of a replica, if it keeps one of so many equal shares of the slots."""
        return self.state_bytes - self.slot_bytes * (1 - 1 / num_shares)

    def update_s(self, hardware: Hardware) -> float:
        """Seconds of the update on a device."""
        return (self.update_bytes / hardware.memory_bytes_per_s
                + self.num_weights * hardware.weight_s)


def update_traffic(element: Element, slot_bytes: Callable[[Weight], int]) -> UpdateTraffic:
    """The traffic of a layer.

    Weights and slots are read and written. A gradient is read for its norm, read and written when
    it is divided by the weight of the mini-batch, read by the optimizer, and set to 0.

    Args:
      element: the layer.
      slot_bytes: as of `make_plan`.
    """
    gradient_bytes = element.gradient_bytes
    owned = slots_of(element, slot_bytes)
    bytes_of_slots = sum(weight.slot_bytes for weight in owned)
    other_bytes = sum(weight.weight_bytes for weight in owned) + bytes_of_slots
    return UpdateTraffic(gradient_bytes, gradient_bytes + other_bytes,
                         5 * gradient_bytes + 2 * other_bytes, len(element.trained),
                         bytes_of_slots)


def total_traffic(of_layers: Iterable[UpdateTraffic]) -> UpdateTraffic:
    """What some layers train together."""
    layers = list(of_layers)
    return UpdateTraffic(*(sum(amounts) for amounts in zip((0,) * 5, *layers, strict=True)))
