"""Placement: which cell is on which device."""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from lingpipe import cluster
from lingpipe.pipeline.planning.layout import Layout
from lingpipe.wording.counts import counted

# What `cluster.place` makes of a device string: strings that mean one device give the same place.
Place = tuple[str, int, str, int]


@dataclasses.dataclass(frozen=True)
class Placement:
    """The devices of all cells of all replicas.

    Attributes:
      devices: [R][K] tf.device strings.
    """
    devices: tuple[tuple[str, ...], ...]

    @property
    def all_devices(self) -> list[str]:
        """The devices of all replicas in one list, with one entry a cell."""
        return [device for devices in self.devices for device in devices]

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

    def cells_that_share(self) -> list[list[int]]:
        """The cells in groups: those of a group share devices with each other, and with no others.

        Two cells share a device if any replica has both on it, or a third that shares with both.
        """
        groups: list[set[int]] = []
        for cells in self.cells_of_place.values():
            touched = [group for group in groups if group & set(cells)]
            groups = [group for group in groups if group not in touched]
            groups.append(set(cells).union(*touched))
        return sorted(sorted(group) for group in groups)

    def device_at(self, place: Place) -> str:
        """The first string that names this device."""
        return next(device for device in self.all_devices if cluster.place(device) == place)


def place_cells(devices: Sequence[str], num_replicas: int, layout: Layout) -> Placement:
    """Puts the cells on devices.

    Args:
      devices: tf.device strings, replica after replica: [R K], the cells one after the other, or
        [R D], on which the layout spreads them. More may be given than are used.
      num_replicas: R.
      layout: [K] the device of each cell, counted from 0 to D - 1.

    Raises:
      ValueError: there are too few devices.
    """
    num_cells, num_shared = len(layout), max(layout) + 1
    has_one_each = len(devices) >= num_replicas * num_cells
    num_devices = num_cells if has_one_each else num_shared
    if len(devices) < num_replicas * num_devices:
        raise ValueError(f'{counted(num_cells, "cell")} of {counted(num_replicas, "replica")} need '
                         f'at least {counted(num_replicas * num_devices, "device")}, but there are '
                         f'{len(devices)}; name more, or use fewer cells.')
    of_cell = range(num_cells) if has_one_each else layout
    return Placement(tuple(tuple(devices[r * num_devices + device] for device in of_cell)
                           for r in range(num_replicas)))
