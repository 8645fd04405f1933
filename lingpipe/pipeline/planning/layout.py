"""Layout: which cells share a device, where a device has several.

A layout is a tuple with the device of each cell, counted from 0. With 8 cells on 4 devices

    in_turn   0 1 2 3 0 1 2 3    as Megatron's interleaved schedule has it (arXiv 2104.04473)
    zigzag    0 1 2 3 3 2 1 0    a V for two cells a device (arXiv 2405.15362)

In a zigzag, cells that follow each other where it turns are on one device, and the last cell is on
the first device if a device has an even number of cells.
"""
from __future__ import annotations

from collections.abc import Hashable, Sequence

Layout = tuple[int, ...]

# Schedules that want a device to have several cells, and how many.
_CELLS_PER_DEVICE = {'interleaved': 2, 'zb_v': 2, 'v_half': 2, 'v_min': 2, 'dual_pipe_v': 2}
_IN_TURN = ('gpipe', '1f1b', 'interleaved')


def in_turn(num_cells: int, num_devices: int) -> Layout:
    """Deals the cells out to the devices in turn."""
    return tuple(k % num_devices for k in range(num_cells))


def zigzag(num_cells: int, num_devices: int) -> Layout:
    """Deals the cells out to the devices and back again."""
    there_and_back = [*range(num_devices), *reversed(range(num_devices))]
    return tuple(there_and_back[k % (2 * num_devices)] for k in range(num_cells))


def num_devices_for(schedule: str, num_cells: int, cells_per_device: int = 0) -> int:
    """How many devices a schedule wants for its cells: D.

    Args:
      schedule: its name.
      num_cells: K.
      cells_per_device: 0 for what the schedule wants.
    """
    return -(-num_cells // (cells_per_device or _CELLS_PER_DEVICE.get(schedule, 1)))


def layout_for(schedule: str, num_cells: int, num_devices: int) -> Layout:
    """How a schedule wants its cells on the devices."""
    return (in_turn if schedule in _IN_TURN else zigzag)(num_cells, num_devices)


def layout_of(places: Sequence[Hashable]) -> Layout:
    """The layout of cells that are on given places, which are counted as they appear."""
    numbers = {place: i for i, place in enumerate(dict.fromkeys(places))}
    return tuple(numbers[place] for place in places)
