"""The partitioner against brute force, and the sentences of its errors."""

import random
import re
from fractions import Fraction
from itertools import accumulate, combinations, pairwise

import numpy as np
import pytest

from lingpipe.pipeline.planning.partitioner import (
    balance,
    partition,
    partition_among,
    partition_fused,
)


def all_partitions(num_layers, num_cells):
    for cuts in combinations(range(1, num_layers), num_cells - 1):
        yield tuple(range(start, stop) for start, stop in pairwise((0, *cuts, num_layers)))


def brute_force(costs, num_cells, rule):
    return brute_force_among([costs] * num_cells, rule)


def brute_force_among(costs, rule, is_allowed=lambda k, cell: True):
    """Tries every partition. Costs are integers or fractions, so the comparison is exact."""
    num_cells = len(costs)
    cost_sums = [[0, *accumulate(of_cell)] for of_cell in costs]

    def worth(cells):
        sums = [cost_sum[cell.stop] - cost_sum[cell.start]
                for cost_sum, cell in zip(cost_sums, cells, strict=True)]
        return (
            max(sums) if rule == 'bottleneck' else 0,
            sum(c * c for c in sums),
            # Each layer costs an infinitesimal more.
            sum(c * len(cell) for c, cell in zip(sums, cells, strict=True)),
            sum(len(cell) ** 2 for cell in cells),
            [cell.start for cell in reversed(cells)],  # Later cells get more layers.
        )

    found = (cells
             for cells in all_partitions(len(costs[0]), num_cells)
             if all(map(is_allowed, range(num_cells), cells)))
    return min(found, key=worth, default=None)


def draw_costs(rng, num_layers):
    kind = rng.randrange(5)
    if kind == 0:
        return [rng.randrange(3) for _ in range(num_layers)]  # Zeros and ties are frequent.
    if kind == 1:
        return [rng.choice([0, 5])] * num_layers
    if kind == 2:
        return [rng.choice([1, 1, 1, 50]) for _ in range(num_layers)]
    return [rng.randrange(1000) for _ in range(num_layers)]


@pytest.mark.parametrize('rule', ['bottleneck', 'variance'])
def test_agrees_with_brute_force(rule):
    """Runs 2 x 1,700 cases, tie-breaks included."""
    rng = random.Random(rule)
    for _ in range(1700):
        num_layers = rng.randint(1, 9)
        num_cells = rng.randint(1, min(num_layers, 5))
        costs = draw_costs(rng, num_layers)
        assert partition(costs, num_cells, rule=rule) == brute_force(costs, num_cells, rule), (
            costs, num_cells)


@pytest.mark.parametrize('rule', ['bottleneck', 'variance'])
@pytest.mark.parametrize('allowed', ['all', 'by bytes', 'any'])
def test_agrees_with_brute_force_where_not_every_cell_is_allowed(rule, allowed):
    """Runs 6 x 800 cases, tie-breaks included.

    A layer costs something else in some cells. Cells are limited by sums of bytes, with a limit for
    each cell, or allowed at random.
    """
    rng = random.Random(f'{rule} {allowed}')
    num_refused = 0
    for _ in range(800):
        num_layers = rng.randint(1, 9)
        num_cells = rng.randint(1, min(num_layers, 5))
        costs_of_cells = [draw_costs(rng, num_layers), draw_costs(rng, num_layers)]
        costs = [rng.choice(costs_of_cells) for _ in range(num_cells)]
        layer_bytes = [rng.randrange(6) for _ in range(num_layers)]
        limits = [max(0, sum(layer_bytes) // num_cells + rng.randint(-1, 5))
                  for _ in range(num_cells)]
        refused = {(k, *span)
                   for k in range(num_cells) for span in combinations(range(num_layers + 1), 2)
                   if rng.random() < 0.5}

        def is_allowed(k, cell):
            if allowed == 'by bytes':
                return sum(layer_bytes[i] for i in cell) <= limits[k]   # noqa: B023
            return allowed == 'all' or (k, cell.start, cell.stop) not in refused   # noqa: B023

        def stops(k, start):
            return sum(1 << stop for stop in range(start + 1, num_layers + 1)   # noqa: B023
                       if is_allowed(k, range(start, stop)))   # noqa: B023

        expected = brute_force_among(costs, rule, is_allowed)
        num_refused += expected is None
        assert partition_among(costs, stops, rule=rule) == expected, costs
    assert (num_refused == 0) == (allowed == 'all') and num_refused < 480


@pytest.mark.parametrize('rule', ['bottleneck', 'variance'])
def test_agrees_with_brute_force_on_floats(rule):
    """Floats are compared as the fractions they are, without rounding."""
    rng = random.Random(1)
    for _ in range(300):
        num_layers = rng.randint(1, 8)
        num_cells = rng.randint(1, min(num_layers, 4))
        costs = [rng.choice([0.1, 0.3, rng.random(), 1e-300, 1e9 * rng.random()])
                 for _ in range(num_layers)]
        assert (partition(costs, num_cells, rule=rule)
                == brute_force([Fraction(c) for c in costs], num_cells, rule))


def lengths(cells):
    return [len(cell) for cell in cells]


@pytest.mark.parametrize(
    'costs, num_cells, expected',
    [
        ([1] * 4, 4, [1, 1, 1, 1]),  # Lingvo's leaves the first cell empty
        ([1] * 7, 4, [1, 2, 2, 2]),  # torchgpipe gives 1, 1, 1, 4.
        ([1] * 11, 6, [1, 2, 2, 2, 2, 2]),  # torchgpipe gives 1, 1, 1, 1, 1, 6.
        ([1, 1, 50, 50], 3, [2, 1, 1]),  # torchgpipe leaves a cell empty.
        ([1, 1, 1, 1, 50, 50], 5, [1, 1, 2, 1, 1]),  # torchgpipe never returns.
    ],
)
def test_cases_that_other_balancers_get_wrong(costs, num_cells, expected):
    assert lengths(partition(costs, num_cells)) == expected


@pytest.mark.parametrize('rule', ['bottleneck', 'variance'])
def test_layers_without_cost_are_shared_out_evenly(rule):
    assert lengths(partition([0.0] * 8, 3, rule=rule)) == [2, 3, 3]
    assert lengths(partition([0, 0, 0, 9, 0, 0], 2, rule=rule)) == [3, 3]


def test_the_rules_differ_where_a_small_cell_costs_more_variance_than_a_slow_one():
    costs = [1, 5, 2, 3]
    assert lengths(partition(costs, 3, rule='bottleneck')) == [1, 1, 2]  # 1, 5, 5
    assert lengths(partition(costs, 3, rule='variance')) == [2, 1, 1]  # 6, 2, 3


def test_one_tenth_ten_times_is_ten_equal_costs():
    """Sums of floats differ in the last bit, which must not decide a tie."""
    assert lengths(partition([0.1] * 12, 4)) == [3, 3, 3, 3]


def test_numpy_costs_are_welcome():
    assert partition(np.array([1, 2, 3], np.float32), 2) == (range(0, 2), range(2, 3))


def test_2000_layers_in_128_cells():
    rng = random.Random(2)
    costs = [rng.randint(1, 10**9) for _ in range(2000)]
    cells = partition(costs, 128)
    largest = max(sum(costs[i] for i in cell) for cell in cells)
    assert [i for cell in cells for i in cell] == list(range(2000))
    assert fewest_cells(costs, largest) <= 128 < fewest_cells(costs, largest - 1)


def fewest_cells(costs, ceiling):
    """Fills cells greedily, which is optimal if only the cost of a cell is limited."""
    num_cells, held = 1, 0
    for cost in costs:
        if held + cost > ceiling:
            num_cells, held = num_cells + 1, 0
        held += cost
    return num_cells


def test_the_variance_of_a_large_case_agrees_with_the_full_dynamic_programme():
    rng = np.random.default_rng(3)
    costs = rng.integers(0, 100, 400)
    sums = np.concatenate([[0], np.cumsum(costs)])
    squares = (sums[None, :] - sums[:, None]) ** 2
    squares[np.tril_indices(401)] = 10**12  # [start, stop] of an empty cell
    best = np.where(np.arange(401) == 0, 0, 10**12)
    for _ in range(32):
        best = (best[:, None] + squares).min(axis=0)
    cells = partition(costs.tolist(), 32, rule='variance')
    assert sum(int(sums[cell.stop] - sums[cell.start]) ** 2 for cell in cells) == best[400]


@pytest.mark.parametrize(
    'arguments, sentence',
    [(dict(costs=[1, 2], num_cells=3),
      'num_cells=3 is more than the 2 layers, and a cell cannot be empty; use at most 2 cells'),
     (dict(costs=[1, 2], num_cells=0), 'num_cells=0 is not a number of cells; use 1 to 2'),
     (dict(costs=[1, -2], num_cells=1),
      'costs[1]=-2 is not a finite number of 0 or more; correct the estimate for layer 1'),
     (dict(costs=[float('nan')], num_cells=1), 'costs[0]=nan is not a finite number'),
     (dict(costs=[1, float('inf')], num_cells=1), 'costs[1]=inf is not a finite number'),
     (dict(costs=[1, 2], num_cells=1, rule='varience'),
      "rule='varience' is not a rule; use 'bottleneck' or 'variance'"),],
)
def test_errors_say_what_was_found_the_rule_and_the_remedy(arguments, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        partition(**arguments)


def test_balance_is_the_mean_cell_over_the_largest():
    assert balance([1, 1, 2, 4], [range(0, 3), range(3, 4)]) == 1.0
    assert balance([1, 1, 2, 4], [range(0, 2), range(2, 4)]) == 4 / 6
    assert balance([0, 0], [range(0, 1), range(1, 2)]) == 1.0
    with pytest.raises(ValueError, match='balance of no cells; give at least one range'):
        balance([1], [])


def test_the_fused_last_cell_gets_what_its_missing_recomputation_leaves_room_for():
    assert partition_fused([4] * 7, [3] * 7, 2) == (range(0, 3), range(3, 7))
    assert partition_fused([4, 4], [3, 3], 2) == (range(0, 1), range(1, 2))
    assert partition_fused([5, 1], [3, 1], 1) == (range(0, 2),)


def test_the_fused_partition_agrees_with_brute_force():
    rng = random.Random(3)
    for _ in range(2000):
        costs = [rng.randrange(0, 20) for _ in range(rng.randrange(1, 9))]
        fused = [c * 0.75 for c in costs]
        k = rng.randrange(1, len(costs) + 1)
        best = min(_slowest(costs, fused, cells) for cells in all_partitions(len(costs), k))
        found = partition_fused(costs, fused, k)
        assert len(found) == k and all(found) and _slowest(costs, fused, found) == best, (costs, k)


def _slowest(costs, fused, cells):
    return max(
        [sum(costs[i] for i in cell) for cell in cells[:-1]] + [sum(fused[i] for i in cells[-1])])
