"""Zigzag partition: the cuts that balance devices which have their cells in a V.

There a device has a cell of the first half of the network and one of the second:

    units    0 1 2 | 3 4 | 5 6 | 7 8 9
    device     0      1     1      0

What a device takes, and what it holds, is known when both its cells are. So the V is filled from
its ends, one device after the other, and dynamic programming over the units that are taken from the
left and from the right finds the best cuts exactly. Among those whose slowest device is fastest,
they have the least sum of squared times of cells.

K cells, U units of layers, D devices.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from lingpipe.pipeline.planning.layout import Layout, zigzag

Spans = tuple[np.ndarray, np.ndarray]
"""The first units of some cells, and the units behind their last."""

Fits = Callable[[int, Spans, Spans | None], np.ndarray]
"""Whether a device can hold cells of the spans given, left [n] and right [p, q].

The result is bool [n, p, q]; [n, 1, 1] if the device has no cell on the right, or if what that
needs does not matter.
"""

_AS_SLOW = 1 + 1e-9   # Sums in another order count as equal.
_SLACK = 1.25         # First, the slowest device may be slower than the mean by this factor.


def is_v(layout: Layout) -> bool:
    """Whether devices have one cell or two, in a V."""
    num_devices = max(layout) + 1
    return num_devices < len(layout) <= 2 * num_devices and layout == zigzag(
        len(layout), num_devices)


def balanced_devices(layout: Layout, costs: Sequence[np.ndarray],
                     fits: Fits) -> list[range] | None:
    """Returns the spans of units of the best partition whose devices fit; None if none does.

    Args:
      layout: [K] the device of each cell, in a V.
      costs: [K][U + 1, U + 1] what a cell takes, by its first unit and its end.
      fits: whether a device can hold its cells.
    """
    filling = _Filling(layout, costs, fits)
    fastest = filling.fastest()
    if fastest is None:
        return None
    evenest = filling.best(np.add, fastest[0] * _AS_SLOW)
    assert evenest is not None, 'the fastest partition is under the ceiling'
    return evenest[1]


def slowest_device(layout: Layout, costs: Sequence[np.ndarray], fits: Fits) -> float:
    """What the slowest device of the best partition takes, infinity if none fits.

    Args:
      layout, costs, fits: as of `balanced_devices`.
    """
    fastest = _Filling(layout, costs, fits).fastest()
    return np.inf if fastest is None else fastest[0]


class _Filling:
    """The ways to fill a V."""

    def __init__(self, layout: Layout, costs: Sequence[np.ndarray], fits: Fits):
        self._num_units, self._num_cells = len(costs[0]) - 1, len(layout)
        self._costs = costs
        self._cells = [[k for k, home in enumerate(layout) if home == device]
                       for device in range(max(layout) + 1)]
        self._fits = fits

    def fastest(self) -> tuple[float, list[range]] | None:
        """What the slowest device takes at least, and the spans of which that is true."""
        highest = 2 * max(of_cell[0, -1] for of_cell in self._costs)
        ceiling = _SLACK * highest / 2 / len(self._cells)
        while (fastest := self.best(np.maximum, ceiling)) is None and ceiling < highest:
            ceiling *= 4
        return fastest

    def best(self, combine: np.ufunc, ceiling: float) -> tuple[float, list[range]] | None:
        """The least cost of a partition whose devices take no more than the ceiling, and its spans.

        Args:
          combine: of the costs of devices: np.maximum of what they take, or np.add of the squares
            of what their cells take.
        """
        size = self._num_units + 1
        cost = np.full((size, size), np.inf)   # by the units taken from the left and the right
        cost[0, 0] = 0.0
        lengths = []                           # [D] those of the device's cells that led there
        for device in range(len(self._cells)):
            cost, chosen = self._with_device(device, cost, combine, ceiling)
            lengths.append(chosen)

        from_left = np.arange(size)
        at_end = cost[from_left, self._num_units - from_left]
        left = int(at_end.argmin())
        if np.isinf(at_end[left]):
            return None
        return float(at_end[left]), self._traced_back(lengths, left, self._num_units - left)

    def _with_device(self, device: int, before: np.ndarray, combine: np.ufunc,
                     ceiling: float) -> tuple[np.ndarray, np.ndarray]:
        """The least costs with one device more, and the lengths of its cells, [U + 1, U + 1, 2].

        Whether cells fit is asked only for those that are reached and under the ceiling.
        """
        after = np.full(before.shape, np.inf)
        chosen = np.zeros((*before.shape, 2), np.int32)
        right, right_s = self._right_spans[device], np.zeros((1, len(before)))   # [lengths, U + 1]
        if right is not None:
            right_s = self._costs[self._cells[device][1]][right]
            right, right_s = _shortest(
                int(np.count_nonzero(right_s.min(axis=1) <= ceiling)), right, right_s)
        is_reached = np.isfinite(before).any(axis=1)
        for p in range(1, self._longest + 1):
            outside = np.arange(len(before) - p)
            left_s = self._costs[self._cells[device][0]][outside, outside + p]
            outside = outside[is_reached[outside] & (left_s <= ceiling)]
            left = outside, outside + p
            if not len(outside) or not self._fits(device, left, None).any():
                continue
            fits = self._fits(device, left, right)
            if right is not None:   # From the same first unit on, a longer left cell needs no less.
                num_fitting = int(np.flatnonzero(fits.any(axis=(0, 2))).max(initial=-1)) + 1
                fits = fits[:, :num_fitting]
                right, right_s = _shortest(num_fitting, right, right_s)
            left_s = left_s[outside]
            device_s = left_s[:, None, None] + right_s
            own = device_s if combine is np.maximum else (
                left_s[:, None, None] ** 2 + right_s ** 2)
            total = combine(before[outside, None, :], own)   # [left, lengths, U + 1]
            total[(device_s > ceiling) | ~fits] = np.inf
            for i in np.flatnonzero(np.isfinite(total).any(axis=(0, 2))):
                q = int(i) + (right is not None)
                of_length, rows = total[:, i, :len(before) - q], outside + p
                is_better = of_length < after[rows, q:]
                after[rows, q:] = np.where(is_better, of_length, after[rows, q:])
                chosen[rows, q:] = np.where(is_better[..., None], (p, q), chosen[rows, q:])
        return after, chosen

    @functools.cached_property
    def _right_spans(self) -> list[Spans | None]:
        """[D] the spans of a cell on the right, by its length and the units outside, [n, U + 1].

        It is None if the device has none. Spans that begin before the first unit are empty.
        """
        size = self._num_units + 1
        outside = np.arange(size)[None, :]
        lengths = np.arange(1, self._longest + 1)[:, None]
        stops = np.broadcast_to(self._num_units - outside, (self._longest, size))
        starts = np.where(stops >= lengths, stops - lengths, stops)
        return [(starts, stops) if len(cells) == 2 else None for cells in self._cells]

    @property
    def _longest(self) -> int:
        """The most units that a cell can have."""
        return self._num_units - self._num_cells + 1

    def _traced_back(self, lengths: Sequence[np.ndarray], left: int, right: int) -> list[range]:
        """The spans of all cells, from how many units there are on either side at the end."""
        firsts, lasts = [], []
        for device in reversed(range(len(lengths))):
            p, q = map(int, lengths[device][left, right])
            firsts.append(range(left - p, left))
            if q:
                lasts.append(range(self._num_units - right, self._num_units - right + q))
            left, right = left - p, right - q
        return [*reversed(firsts), *lasts]


def _shortest(number: int, right: Spans, right_s: np.ndarray) -> tuple[Spans, np.ndarray]:
    """The spans of that many lengths, and what they take."""
    return (right[0][:number], right[1][:number]), right_s[:number]
