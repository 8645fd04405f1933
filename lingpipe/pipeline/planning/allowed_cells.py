"""Allowed cells: which spans of layers may be cells, and which partitions they leave.

Sets of layers are the bits of integers. L layers, K cells, k a cell.
"""
from __future__ import annotations

import functools
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator


def anywhere(num_layers: int) -> Callable[[int, int], int]:
    """The `stops` of `partition_among` that allow every cell."""
    all_stops = (1 << num_layers + 1) - 1
    return lambda k, start: all_stops >> start + 1 << start + 1


class AllowedCells:
    """The cells that may be, each as the layers at which it begins and ends."""

    def __init__(self, stops: Callable[[int, int], int], sums_of: list[list[int]]):
        """
        Args:
          stops: as of `partition_among`.
          sums_of: [K][L + 1] the cost of the layers before each one, if they are in cell k.
        """
        self.sums_of = sums_of
        self.num_cells, self.num_layers = len(sums_of), len(sums_of[0]) - 1
        self._stops = stops

    def stops(self, k: int, start: int, ceiling: int) -> int:
        """Where cell k may end if it costs at most the ceiling and leaves layers to the rest."""
        sums, last = self.sums_of[k], self.num_cells - 1
        furthest = bisect_right(sums, sums[start] + ceiling) - 1
        room = self.num_layers - (last - k)
        stops = self._stops(k, start) & ((1 << min(furthest, room) + 1) - 1)
        return stops if k < last else stops & (1 << self.num_layers)

    def reached(self, ceiling: int) -> list[int]:
        """[K + 1] where cell k can begin so that the cells before it exist.

        The last entry is empty if there is no partition.
        """
        starts = [1]
        for k in range(self.num_cells):
            starts.append(functools.reduce(
                operator.or_, (self.stops(k, start, ceiling) for start in bits(starts[k])), 0))
        return starts

    def has_partition(self, ceiling: int) -> bool:
        """Whether there is a partition whose cells cost no more than the ceiling."""
        return bool(self.reached(ceiling)[-1])

    def bottleneck(self, highest: int) -> int:
        """The cost of the slowest cell of the best partition.

        It is the cost of a span of layers, and there are few such costs where layers are alike. So
        the bounds of the bisection always move on to the next of them.

        Args:
          highest: a ceiling under which there is a partition.
        """
        distinct_sums = dict.fromkeys(map(tuple, self.sums_of))

        def cost_up_to(most: int) -> int:
            """The highest cost of a span that is no more than this."""
            return max(sums[bisect_right(sums, before + most) - 1] - before
                       for sums in distinct_sums for before in sums)

        def cost_from(least: int) -> int:
            """The lowest cost of a span that is no less than this."""
            return min(sums[stop] - before for sums in distinct_sums for before in sums
                       if (stop := bisect_left(sums, before + least)) < len(sums))

        low, high = 0, cost_up_to(highest)
        while low < high:
            middle = (low + high) // 2
            if self.has_partition(middle):
                high = cost_up_to(middle)
            else:
                low = cost_from(middle + 1)
        return high

    def alive(self, ceiling: int) -> list[int]:
        """[K + 1] where cell k can begin so that those before it and those after it exist."""
        starts = self.reached(ceiling)
        for k in reversed(range(self.num_cells)):
            starts[k] = sum(1 << start for start in bits(starts[k])
                            if self.stops(k, start, ceiling) & starts[k + 1])
        return starts


def bits(number: int) -> Iterator[int]:
    """The places of the ones, ascending."""
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest
