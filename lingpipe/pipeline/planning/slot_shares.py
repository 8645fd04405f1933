"""Slot shares: which replica keeps the optimizer slots and the average of which weight.

With PipelineParams.shard_slots, each weight belongs to one replica, which updates it and hands it
round (ZeRO stage 1, arXiv 1910.02054). A whole weight is the unit, since some optimizers need norms
of whole weights, and since each key of a checkpoint is then still one variable. Layer by layer, the
largest weight comes first, and each goes to the replica that has the fewest bytes of the cell so
far. So what a share holds depends only on the layers so far, and a cell can grow.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lingpipe.layers.weight import Weight
    from lingpipe.pipeline.planning.cell import Cell
    from lingpipe.pipeline.planning.dataflow import Element


class SlotBytes(NamedTuple):
    """A weight that trains: its path, its own bytes, and those of its slots and average."""
    path: str
    weight_bytes: int
    slot_bytes: int


class SlotShares:
    """The shares of all replicas in one cell, while it grows.

    Attributes:
      replica_of: path of a weight -> the index of the replica that updates it.
    """

    def __init__(self, num_replicas: int):
        self.replica_of: dict[str, int] = {}
        self._bytes = [0] * num_replicas   # with the weights, so that there is work without slots
        self._slot_bytes = [0] * num_replicas

    def add(self, weights: Iterable[SlotBytes]) -> None:
        """Shares out the weights of the next layer."""
        for weight in sorted(weights, key=lambda one: -one.weight_bytes - one.slot_bytes):
            replica = self._bytes.index(min(self._bytes))
            self.replica_of[weight.path] = replica
            self._bytes[replica] += weight.weight_bytes + weight.slot_bytes
            self._slot_bytes[replica] += weight.slot_bytes

    @property
    def largest(self) -> int:
        """Bytes of slots and averages of the replica that keeps the most."""
        return max(self._slot_bytes)


def slots_of(element: Element, slot_bytes: Callable[[Weight], int]) -> tuple[SlotBytes, ...]:
    """The weights that a layer owns and trains; `slot_bytes` is as of `make_plan`."""
    return tuple(SlotBytes(weight.path, weight.size * weight.dtype.size, slot_bytes(weight))
                 for weight in element.trained if weight.shared_with is None)


def replica_of_weights(cells: Iterable[Cell], slot_bytes: Callable[[Weight], int],
                       num_replicas: int) -> dict[str, int]:
    """Path of every weight that trains -> the index of the replica that updates it."""
    replica_of: dict[str, int] = {}
    for cell in cells:
        shares = SlotShares(num_replicas)
        for element in cell.elements:
            shares.add(slots_of(element, slot_bytes))
        replica_of.update(shares.replica_of)
    return replica_of
