"""Least peaks: the bytes that devices hold at least, from the order of F and B alone.

The peaks of a partition are known when its slots are in order, which takes much longer than to
count the bytes of its cells. But in a schedule by name the order of F and B is the same for all
partitions, unless devices share their cells (shared_devices.py). What depends on times is which
backwards are split. A W only adds to what is held, so a bound follows without it:

    held      from each F to its B
    working   while a B runs; where no other cell waits for that B, it may run later or leave its
              work to a W, and it is counted with one micro-batch of its own cell only
"""
from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from lingpipe.pipeline.planning.memory import Footprint
from lingpipe.pipeline.planning.schedule import Schedule

_Moments = tuple[list[int], np.ndarray, np.ndarray]
"""The cells of a device; at each moment how many micro-batches are live, and which B runs."""


def least_peaks(schedule: Schedule, footprints: Sequence[Footprint]) -> list[float]:
    """The bytes that each device of a schedule holds at least, however backwards are split.

    Args:
      schedule: of cells that all have a backward.
      footprints: [K]; that of a cell without backward has 0 for `held` and `working`.
    """
    least = []
    for cells, live, running in moments(schedule):
        held = np.array([footprints[k].held for k in cells])
        working = np.array([footprints[k].working for k in cells])
        is_awaited = np.array([footprints[k].gives_gradients for k in cells])
        most = max(float((live @ held + running @ (working * is_awaited)).max()),
                   float((held + working).max()),
                   sum(footprints[k].received for k in cells))
        least.append(sum(footprints[k].fixed for k in cells) + most)
    return least


@functools.lru_cache(maxsize=32)
def moments(schedule: Schedule) -> list[_Moments]:
    """For each device, the moments at which it may hold most."""
    moments = []
    for slots in schedule.devices:
        cells = sorted({slot.cell for slot in slots})
        column = {k: i for i, k in enumerate(cells)}
        live = [0] * len(cells)
        rows: dict[tuple[int, ...], None] = {}
        for slot in slots:
            k = column[slot.cell]
            live[k] += schedule.runs_forward(slot)
            running = [0] * len(cells)
            running[k] = slot.kind == 'B'
            rows[(*live, *running)] = None
            live[k] -= slot.kind == 'B'
        table = np.array(list(rows))
        table = table[[not is_below_another(row, table) for row in table]]
        moments.append((cells, table[:, :len(cells)], table[:, len(cells):]))
    return moments


def is_below_another(row: np.ndarray, table: np.ndarray) -> bool:
    """Whether another row has as much in every column; all rows are different."""
    return int((table >= row).all(axis=1).sum()) > 1
