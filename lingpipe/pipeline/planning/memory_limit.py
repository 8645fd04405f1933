"""Memory limit: the cuts that leave no device with more bytes than it has.

What a cell needs (memory.py) depends on which layers it holds, and on how many of its micro-batches
are live at once, which follows from its place in the schedule. So the bytes of every span of layers
that could be a cell are computed once, and the partitioner chooses among the spans that fit.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lingpipe.pipeline.planning.memory import Memory


class Needs:
    """The bytes that a device needs for any cell, if it has no other.

    Attributes:
      num_units: how many units of layers there are; a cell holds whole ones.
    """

    def __init__(self, memory: Memory, modes: Sequence[str], starts: Sequence[int],
                 live: Sequence[int], most: float):
        """
        Args:
          memory: what cells hold.
          modes: [K] PipelineParams.recompute_of each cell.
          starts: the layer where each unit begins, and the number of layers.
          live: [K] the most micro-batches of a cell with a backward that are live at once.
          most: what no device needs to have; spans whose weights alone need more are left out.
        """
        self.num_units = len(starts) - 1
        self._live, self._modes = list(live), list(modes)
        self._rows = {mode: [_row(memory, mode, starts, unit, most)
                             for unit in range(self.num_units)]
                      for mode in dict.fromkeys(one for mode in modes for one in _modes_of(mode))}

    def of(self, k: int, start: int) -> np.ndarray:
        """[n] the bytes of a cell k that holds one unit from `start` on, two, and so on.

        The longest that is listed is the last whose weights may fit.
        """
        needs = []
        for mode in _modes_of(self._modes[k]):
            fixed, held, working, received, has_backward = self._rows[mode][start]
            live = np.where(has_backward, self._live[k], 1)
            needs.append(fixed + np.maximum(live * held + working, received))
        return np.asarray(np.minimum.reduce(needs))

    def stops(self, k: int, start: int, limit: float) -> int:
        """Where a cell k from `start` on may end so that it needs no more than `limit` bytes.

        The result is a set of units as bits; see `partitioner.partition_among`.
        """
        return as_bits(self.of(k, start) <= limit) << (start + 1)

    def least(self) -> float:
        """The fewest bytes a device can have so that a partition fits, with one cell a device."""
        least = np.full(self.num_units + 1, np.inf)
        least[0] = 0
        for k in range(len(self._live)):
            before, least = least, np.full(self.num_units + 1, np.inf)
            for start in np.flatnonzero(np.isfinite(before[:-1])):
                needs = self.of(k, int(start))
                reached = least[start + 1:start + 1 + len(needs)]
                np.minimum(reached, np.maximum(needs, before[start]), out=reached)
        return float(least[-1])

    def largest_unit(self) -> tuple[float, int]:
        """(bytes, unit) of the unit that needs most where it needs least."""
        def least_need(unit: int) -> float:
            of_cells = [self.of(k, unit) for k in range(len(self._live))]
            return min((float(needs[0]) for needs in of_cells if len(needs)), default=float('inf'))

        return max((least_need(unit), unit) for unit in range(self.num_units))


def as_bits(flags: np.ndarray) -> int:
    """The integer whose bits, the lowest first, are flags."""
    return int.from_bytes(np.packbits(flags, bitorder='little').tobytes(), 'little')


def _modes_of(mode: str) -> tuple[str, ...]:
    """The modes of which a cell may take the one that needs least."""
    return ('none', 'cell', 'layer') if mode == 'fit' else (mode,)


def _row(memory: Memory, mode: str, starts: Sequence[int], unit: int,
         most: float) -> tuple[np.ndarray, ...]:
    """[n] of fixed, held, working, received and has_backward of the cells from `unit` on."""
    cells = []
    ends = set(starts[unit + 1:])
    has_backward = False
    layers = range(starts[unit], starts[-1])
    for i, footprint in zip(layers, memory.growing(starts[unit], mode), strict=True):
        has_backward |= memory.elements[i].has_backward
        if footprint.fixed > most:
            break
        if i + 1 in ends:
            cells.append((*footprint[:4], has_backward))
    columns = list(zip(*cells, strict=True)) or [()] * 5
    return *(np.array(column, np.int64) for column in columns[:4]), np.array(columns[4], bool)
