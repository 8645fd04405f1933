"""Allowed cells: the spans of layers that may be cells, in a literal example."""
from __future__ import annotations

from lingpipe.pipeline.planning.allowed_cells import AllowedCells, anywhere, bits

# Four layers of costs 1, 2, 3, 4 in two cells.
SUMS = [[0, 1, 3, 6, 10]] * 2


def layers(sets: list[int]) -> list[list[int]]:
    return [list(bits(one)) for one in sets]


def test_bits_are_the_places_of_the_ones():
    assert list(bits(0b10110)) == [1, 2, 4] and list(bits(0)) == []


def test_anywhere_allows_every_cell():
    stops = anywhere(3)
    assert layers([stops(0, start) for start in range(3)]) == [[1, 2, 3], [2, 3], [3]]


def test_a_ceiling_says_where_cells_may_begin():
    allowed = AllowedCells(anywhere(4), SUMS)
    assert layers([allowed.stops(0, 0, 6), allowed.stops(1, 3, 6), allowed.stops(1, 2, 6)]) == [
        [1, 2, 3], [4], []]
    assert layers(allowed.reached(6)) == [[0], [1, 2, 3], [4]]
    assert layers(allowed.alive(6)) == [[0], [3], [4]]
    assert allowed.has_partition(6) and not allowed.has_partition(5)
    assert allowed.bottleneck(10) == 6


def test_a_cell_that_may_not_be_moves_the_bottleneck():
    def stops(k: int, start: int) -> int:
        """Cell 0 has at most two layers."""
        return anywhere(4)(k, start) & (0b111 if k == 0 else -1)

    allowed = AllowedCells(stops, SUMS)
    assert layers(allowed.alive(7)) == [[0], [2], [4]]
    assert allowed.bottleneck(10) == 7
