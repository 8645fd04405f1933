"""Placement: which cell is on which device."""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from lingpipe import cluster

# What `cluster.place` makes of a device string: strings that mean one device give the same place.
Place = tuple[str, int, str, int]


@dataclasses.dataclass(frozen=True)
class Placement:
    """The devices of all cells of all replicas.

    Attributes:
      devices: [R][K] tf.device strings.
    """
    devices: tuple[tuple[str, ...], ...]

    @functools.cached_property
    def places(self) -> tuple[tuple[Place, ...], ...]:
        """The place of each device, [R, K]."""
        return tuple(tuple(cluster.place(device) for device in devices)
                     for devices in self.devices)

    @functools.cached_property
    def cells_of_place(self) -> dict[Place, list[int]]:
        """The indices of the cells on each device, replica after replica."""
        cells: dict[Place, list[int]] = {}
        for places in self.places:
            for k, place in enumerate(places):
                cells.setdefault(place, []).append(k)
        return cells

    def device_at(self, place: Place) -> str:
        """The first string that names this device."""
        strings = (device for devices in self.devices for device in devices)
        return next(device for device in strings if cluster.place(device) == place)


def place_cells(devices: Sequence[str], num_replicas: int, num_cells: int) -> Placement:
    """Puts the cells on devices, one after the other.

    Args:
      devices: [R K] tf.device strings, replica after replica.
      num_replicas: R.
      num_cells: K.
    """
    return Placement(tuple(tuple(devices[r * num_cells + k] for k in range(num_cells))
                           for r in range(num_replicas)))
