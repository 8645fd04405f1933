"""Zigzag partition: the best cuts for devices with cells in a V, against all cuts."""
from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from lingpipe.pipeline.planning.layout import in_turn, zigzag
from lingpipe.pipeline.planning.units import spans_of
from lingpipe.pipeline.planning.zigzag_partition import balanced_devices, is_v, slowest_device


def best_of_all(layout, costs, sizes, limit):
    """(slowest device, sum of squares) of the best of all partitions; None if none fits."""
    num_cells, num_units = len(layout), len(costs)
    found = []
    for cuts in itertools.combinations(range(1, num_units), num_cells - 1):
        spans = list(itertools.pairwise((0, *cuts, num_units)))
        seconds, held = [0] * num_cells, [0] * num_cells   # of devices
        for k, (start, stop) in enumerate(spans):
            seconds[layout[k]] += sum(costs[start:stop])
            held[layout[k]] += sum(sizes[start:stop])
        if max(held) <= limit:
            found.append((max(seconds), sum(sum(costs[a:b]) ** 2 for a, b in spans)))
    return min(found, default=None)


@pytest.mark.parametrize('seed', range(40))
def test_no_partition_that_fits_is_better(seed):
    rng = random.Random(seed)
    num_devices = rng.randint(1, 4)
    num_cells = rng.randint(num_devices + 1, 2 * num_devices)
    num_units = rng.randint(num_cells, num_cells + 4)
    layout = zigzag(num_cells, num_devices)
    costs = [rng.randint(1, 9) for _ in range(num_units)]
    sizes = [rng.randint(1, 9) for _ in range(num_units)]
    limit, bytes_of = rng.randint(5, 60), spans_of(sizes)

    def fits(device, left, right):
        of_right = 0 if right is None else bytes_of[right]
        return bytes_of[left][:, None, None] + np.asarray(of_right) <= limit

    of_cells = [spans_of(costs)] * num_cells
    expected = best_of_all(layout, costs, sizes, limit)
    spans = balanced_devices(layout, of_cells, fits)
    if expected is None:
        assert spans is None
        assert slowest_device(layout, of_cells, fits) == np.inf
        return
    assert [unit for span in spans for unit in span] == list(range(num_units))
    of_device = [0] * num_devices
    for home, span in zip(layout, spans, strict=True):
        of_device[home] += sum(costs[unit] for unit in span)
    squares = sum(sum(costs[unit] for unit in span) ** 2 for span in spans)
    assert (max(of_device), squares) == expected
    assert slowest_device(layout, of_cells, fits) == expected[0]


def test_a_v_has_one_cell_or_two_on_a_device():
    assert is_v(zigzag(8, 4))
    assert is_v(zigzag(7, 4))
    assert not is_v(zigzag(4, 4))
    assert not is_v(zigzag(9, 4))
    assert not is_v(in_turn(8, 4))
