"""Family bound: how long the slots take at least, whatever the schedule, for any number of cells.

What limited_bound.py finds for one choice takes a tenth of a second where cells and layers are
many. Here the choices of a family, which differ in their number of cells and in their schedule,
share the work: the best way to fill n cells with the first units is a step from that of n - 1. So
all that is known of a schedule is left out: a cell holds one micro-batch at a time.

K cells on D devices, U units of layers.
"""
from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from lingpipe.pipeline.planning.span_bounds import SpanSeconds


@dataclasses.dataclass(frozen=True, eq=False)
class FamilyBound:
    """Bounds for the plans of a network with some M and mode of recomputation.

    Attributes:
      spans: what cells take.
      mode: how all cells recompute.
      fits: bool [U + 1, U + 1], whether a device can hold a cell, by its first unit and its end.
    """
    spans: SpanSeconds
    mode: str
    fits: np.ndarray

    def slots_s(self, num_cells: int, num_devices: int) -> float:
        """Seconds that the slots take at least; infinity if no partition fits.

        Args:
          num_cells: K.
          num_devices: D, of a replica.
        """
        slowest_s = self._slowest_cell_s(num_cells)
        if num_devices == num_cells or math.isinf(slowest_s):
            return slowest_s
        return max(slowest_s, self._all_devices_s(num_cells, num_devices) / num_devices)

    def _slowest_cell_s(self, num_cells: int) -> float:
        """What a step takes at least by what its slowest cell does."""
        before = self._slowest_of_first
        while len(before) < num_cells:
            before.append(np.maximum(before[-1][:, None], self._inner_alone_s).min(axis=0))
        return float(np.maximum(before[num_cells - 1], self._last_alone_s).min())

    def _all_devices_s(self, num_cells: int, num_devices: int) -> float:
        """The least sum of what the devices take, of which the first cells are one on each."""
        before, after = self._sums_of_first, self._sums_of_last
        while len(before) <= num_devices:
            before.append((before[-1][:, None] + self._first_of_device_s).min(axis=0))
        while len(after) < num_cells - num_devices:
            after.append((self._later_of_device_s + after[-1][None, :]).min(axis=1))
        return float((before[num_devices] + after[num_cells - num_devices - 1]).min())

    @functools.cached_property
    def _slowest_of_first(self) -> list[np.ndarray]:
        """[n][U + 1] the least slowest of n cells, none of them the last, of so many units."""
        return [self._nothing]

    @functools.cached_property
    def _sums_of_first(self) -> list[np.ndarray]:
        """[n][U + 1] the least sum of n cells, each the first of its device, of so many units."""
        return [self._nothing]

    @functools.cached_property
    def _sums_of_last(self) -> list[np.ndarray]:
        """[n - 1][U + 1] the least sum of the last n cells, none the first, after so many units."""
        seconds = self.spans.device_s(self.mode, is_last=True, is_first=False)
        return [np.where(self.fits[:, -1], seconds[:, -1], np.inf)]

    @property
    def _nothing(self) -> np.ndarray:
        return np.where(np.arange(len(self.fits)) == 0, 0.0, np.inf)

    @functools.cached_property
    def _inner_alone_s(self) -> np.ndarray:
        """[U + 1, U + 1] what a step takes at least by a cell before the last."""
        return np.where(self.fits, self.spans.alone_s(self.mode, is_last=False), np.inf)

    @functools.cached_property
    def _last_alone_s(self) -> np.ndarray:
        """[U + 1] what it takes at least by the last cell, which begins at a unit."""
        alone_s = self.spans.alone_s(self.mode, is_last=True)
        return np.where(self.fits[:, -1], alone_s[:, -1], np.inf)

    @functools.cached_property
    def _first_of_device_s(self) -> np.ndarray:
        """[U + 1, U + 1] what the first cell of a device adds to its time."""
        seconds = self.spans.device_s(self.mode, is_last=False, is_first=True)
        return np.where(self.fits, seconds, np.inf)

    @functools.cached_property
    def _later_of_device_s(self) -> np.ndarray:
        """[U + 1, U + 1] what a later one adds that is not the last of all."""
        seconds = self.spans.device_s(self.mode, is_last=False, is_first=False)
        return np.where(self.fits, seconds, np.inf)
