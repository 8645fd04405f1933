"""Device bytes: what a device needs for any cells, where the order of slots is known.

In a schedule whose slots are in order, a device holds, at each moment, so many times what each of
its cells holds, works with and hands over. So a moment is a row of numbers, which is the same for
all partitions, and the peak is the largest product of a row with the bytes of the cells. Few rows
matter: most are below another one in every column.

`exact` rows are those of the schedule as it is. `least` rows follow from its F and B alone, as in
least_peaks.py: however backwards are split, no device holds less.

K cells, U units of layers.
"""
from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal

import numpy as np

from lingpipe.pipeline.planning.least_peaks import is_below_another, moments
from lingpipe.pipeline.planning.memory import FIELDS, Footprint, Memory
from lingpipe.pipeline.planning.peaks import change
from lingpipe.pipeline.planning.schedule import Schedule
from lingpipe.pipeline.planning.zigzag_partition import Spans

Rows = Literal['exact', 'least']


class DeviceBytes:
    """The bytes of devices that have one cell or two."""

    def __init__(self, memory: Memory, modes: Sequence[str], starts: Sequence[int],
                 schedule: Schedule, rows: Rows):
        """
        Args:
          memory: what cells hold.
          modes: [K] how each cell recomputes; 'fit' is not allowed.
          starts: the layer where each unit begins, and the number of layers.
          schedule: of cells that all have a backward.
          rows: see the head of this file.
        """
        rows_of = _exact_rows if rows == 'exact' else _least_rows
        columns = _exact_columns if rows == 'exact' else _least_columns
        tables = {mode: memory.table(mode, starts) for mode in dict.fromkeys(modes)}
        self._tables = [tables[mode] for mode in modes]
        self._columns = {mode: columns(table) for mode, table in tables.items()}
        self._modes, self._rows = list(modes), rows_of(schedule)
        self._starts = list(starts)

    def needs(self, device: int, left: Spans, right: Spans | None) -> np.ndarray:
        """[n, p, q] the bytes that a device needs for two cells; [n, 1, 1] those for the first.

        Args:
          device: of the schedule.
          left, right: the units of its cells, [n] and [p, q].
        """
        cells, rows = self._rows[device]
        fixed, received, held = (of_left[..., None, None] for of_left in
                                 self._of_cell(cells[0], left, rows[:, 0]))
        if right is not None:
            fixed_2, received_2, held_2 = self._of_cell(cells[1], right, rows[:, 1])
            fixed, received, held = fixed + fixed_2, received + received_2, held + held_2[:, None]
        return np.asarray(fixed + np.maximum(held.max(axis=0), received))

    def peaks(self, spans: Sequence[range]) -> list[float]:
        """[D] the bytes that each device needs for cells of these layers, [K]."""
        def units(cell: int) -> Spans:
            span = spans[cell]
            bounds = self._starts.index(span.start), self._starts.index(span.stop)
            return np.array([[bounds[0]]]), np.array([[bounds[1]]])

        peaks = []
        for device, (cells, _) in enumerate(self._rows):
            start, stop = units(cells[0])
            right = units(cells[1]) if len(cells) == 2 else None
            peaks.append(float(self.needs(device, (start[0], stop[0]), right).item()))
        return peaks

    def _of_cell(self, cell: int, spans: Spans,
                 rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What is fixed, received and held at each moment for spans, the last [rows, ...]."""
        table = self._tables[cell][:, spans[0], spans[1]]
        columns = self._columns[self._modes[cell]][:, spans[0], spans[1]]
        return table[0], table[FIELDS.index('received')], np.tensordot(rows, columns, 1)


_HELD = ('held', 'working', 'residual', 'handed', 'gradients')


def _exact_columns(table: np.ndarray) -> np.ndarray:
    """[_HELD, U + 1, U + 1]."""
    return np.asarray(np.stack([table[FIELDS.index(name)] for name in _HELD]) * table[-1])


def _least_columns(table: np.ndarray) -> np.ndarray:
    """Held, worked with while a B that others wait for runs, and both, [3, U + 1, U + 1]."""
    held, working, gives_gradients = (
        table[FIELDS.index(name)] for name in ('held', 'working', 'gives_gradients'))
    return np.asarray(
        np.stack([held, working * gives_gradients, held + working]) * table[-1])


@functools.lru_cache(maxsize=128)
def _exact_rows(schedule: Schedule) -> list[tuple[list[int], np.ndarray]]:
    """For each device its cells, and the moments that matter, [rows, cells, _HELD]."""
    of_devices = []
    for slots in schedule.devices:
        cells = sorted({slot.cell for slot in slots})
        units = np.eye(len(cells) * len(_HELD)).reshape(len(cells), len(_HELD), -1)
        footprints = {k: Footprint(gives_gradients=k > 0, **dict(zip(_HELD, of_cell, strict=True)))
                      for k, of_cell in zip(cells, units, strict=True)}
        live = np.zeros(units.shape[-1])
        rows: dict[tuple[float, ...], None] = {}
        for slot in slots:
            before, during, after = change(slot, schedule, footprints[slot.cell])
            live = live + before
            rows[tuple(live + during)] = None
            live = live + after
        of_devices.append((cells, _that_matter(rows).reshape(-1, len(cells), len(_HELD))))
    return of_devices


@functools.lru_cache(maxsize=128)
def _least_rows(schedule: Schedule) -> list[tuple[list[int], np.ndarray]]:
    """For each device its cells, and the moments that matter, [rows, cells, 3]."""
    of_devices = []
    for cells, live, running in moments(schedule):
        rows = np.stack([live, running, np.zeros_like(live)], axis=-1)
        alone = np.zeros((len(cells), len(cells), 3))
        for i in range(len(cells)):
            alone[i, i, 2] = 1
        of_devices.append((cells, np.concatenate([rows, alone])))
    return of_devices


def _that_matter(rows: dict[tuple[float, ...], None]) -> np.ndarray:
    """The rows that are not below another one."""
    table = np.array(list(rows))
    return table[[not is_below_another(row, table) for row in table]]
