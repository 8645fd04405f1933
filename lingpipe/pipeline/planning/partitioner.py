"""Partitioner: cuts a sequence of layers into K consecutive cells, exactly.

Heuristics that move layers between neighbouring cells stop in local optima, and float sums make
equal cells look unequal. Here every cost becomes an integer (a float is a fraction whose
denominator is a power of two, so nothing is rounded), and dynamic programming over prefixes finds
the optimum:

    best[k][j] = min over i of  best[k - 1][i] + (cost of layers i..j-1) ** 2

Read as a matrix with a row a j and a column an i, that sum is Monge, so the leftmost best i never
moves left as j grows, and divide and conquer fills a row of cells in O(L log L) instead of O(L^2).
A ceiling on the cost of a cell keeps this true: it removes columns from the left of a row, never
fewer from a later row, so wherever two rows could disagree all four entries exist. A limit on
memory does not: see `partition_among`.

L layers, K cells, k a cell.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate
from numbers import Integral

from lingpipe.pipeline.planning.allowed_cells import AllowedCells, anywhere, bits
from lingpipe.wording.counts import counted

RULES = ('bottleneck', 'variance')


Cells = tuple[range, ...]
"""[K] the layers of each cell."""


def partition(costs: Sequence[float], num_cells: int, *, rule: str = 'bottleneck') -> Cells:
    """Returns the best K consecutive, non-empty ranges of layers that cover all layers in order.

    Ties are broken as if every layer cost an infinitesimal more than it says (so that layers
    without a cost are shared out evenly); where even that ties, later cells get more layers,
    because earlier cells hold more micro-batches. The answer is exact and depends on nothing but
    the arguments.

    Args:
      costs: [L] cost of each layer, finite and not negative: FLOPs, seconds, any one unit.
      num_cells: K, from 1 to L.
      rule: 'bottleneck' makes the slowest cell as fast as possible and, among those partitions, the
        variance of the cells' costs as small as possible. 'variance' makes the variance as small as
        possible: GPipe's rule (arXiv 1811.06965, section 2.2).

    Raises:
      ValueError: an argument breaks the above.
    """
    _check(costs, num_cells, rule)
    exact_costs, _ = _as_integers(costs)
    cost_sum = _sums(exact_costs)
    ceiling = cost_sum[-1]
    if rule == 'bottleneck':
        ceiling = _bottleneck(cost_sum, exact_costs, num_cells)
    return _least_squares(cost_sum, num_cells, ceiling)


def partition_fused(costs: Sequence[float], fused_costs: Sequence[float], num_cells: int) -> Cells:
    """As `partition` by bottleneck, where a layer in the last cell costs something else.

    The fused last cell recomputes nothing. The slowest of the cells before it can only grow with
    the number of layers they hold, and the last can only shrink, so the best place to cut lies
    where the two cross. To find it, the cost of the slowest is enough, which is known long before
    the cells are.

    Args:
      costs: [L] cost of each layer in any cell but the last.
      fused_costs: [L] its cost in the last cell.
      num_cells: K, from 1 to L.
    """
    if num_cells == 1 or num_cells > len(costs):
        return partition(fused_costs, num_cells)

    def cut(stop: int) -> tuple[float, Cells]:
        """The cost of the slowest cell before the last, which begins at `stop`, and all cells."""
        cells = partition(costs[:stop], num_cells - 1)
        slowest = max(sum(costs[i] for i in cell) for cell in cells)
        return slowest, (*cells, range(stop, len(costs)))

    def is_crossed(stop: int) -> bool:
        exact_costs, unit = _as_integers(costs[:stop])
        slowest = float(_bottleneck(_sums(exact_costs), exact_costs, num_cells - 1) * unit)
        last = sum(fused_costs[stop:])
        if math.isclose(slowest, last):
            # Where rounding decides, it is that of the sums which are compared in the end.
            slowest, _ = cut(stop)
        return slowest >= last

    # The first stop at which the cells before the last are no faster than it.
    first_crossed = _smallest(num_cells - 1, len(costs) - 1, is_crossed)
    candidates = []
    for stop in {first_crossed, max(first_crossed - 1, num_cells - 1)}:
        slowest, cells = cut(stop)
        candidates.append((max(slowest, sum(fused_costs[stop:])), -stop, cells))
    return min(candidates)[2]


def partition_among(
    costs: Sequence[Sequence[float]],
    stops: Callable[[int, int], int] | None = None,
    *,
    rule: str = 'bottleneck',
) -> Cells | None:
    """As `partition`, where a layer may cost something else in every cell and cells may not be.

    Which spans of layers fit a device follows no order (one layer more may read less from other
    cells), so nothing is assumed of `stops`, and a sum of squares over arbitrary gaps is not Monge.
    But few places are left where a cell can begin so that the cells before it and those after it
    exist and none is slower than the best bottleneck; over those plain dynamic programming is fast
    enough.

    Args:
      costs: [K, L] cost of each layer in each cell; K from 1 to L.
      stops: of (k, start), the layers at which a cell k that begins at layer `start` may end, as
        bits of an integer: bit j stands for the cell of the layers start..j-1. By default, anywhere
        behind `start`.
      rule: as of `partition`.

    Returns:
      The best partition whose cells are all allowed; None if there is none.
    """
    num_cells, num_layers = len(costs), len(costs[0])
    distinct = list(dict.fromkeys(map(tuple, costs)))   # Most cells cost alike.
    for of_cell in distinct:
        _check(of_cell, num_cells, rule)
    exact_costs, _ = _as_integers([cost for of_cell in distinct for cost in of_cell])
    sums_of_costs = {of_cell: _sums(exact_costs[i * num_layers:(i + 1) * num_layers])
                     for i, of_cell in enumerate(distinct)}
    sums_of = [sums_of_costs[tuple(of_cell)] for of_cell in costs]
    allowed = AllowedCells(stops or anywhere(num_layers), sums_of)

    highest = max(sums[-1] for sums in sums_of)
    if not allowed.has_partition(highest):
        return None
    ceiling = highest
    if rule == 'bottleneck':
        ceiling = allowed.bottleneck(highest)
    return _least_squares_among(allowed, ceiling, _scale(highest, num_layers))


def _least_squares_among(allowed: AllowedCells, ceiling: int, scale: int) -> Cells:
    """The allowed partition with the least sum of squared cell costs under the ceiling."""
    alive = allowed.alive(ceiling)
    best = {0: 0}  # j -> least sum of squares of the first k cells over layers 0..j-1
    best_start: list[dict[int, int]] = []  # [k][j] -> where the last of those cells starts
    for k, exact_sums in enumerate(allowed.sums_of):
        sums = [scale * cost + i for i, cost in enumerate(exact_sums)]
        least: dict[int, int] = {}
        chosen: dict[int, int] = {}
        for start in bits(alive[k]):
            for stop in bits(allowed.stops(k, start, ceiling) & alive[k + 1]):
                squares = best[start] + (sums[stop] - sums[start]) ** 2
                if stop not in least or squares < least[stop]:
                    least[stop], chosen[stop] = squares, start
        best = least
        best_start.append(chosen)
    return _traced_back(best_start, allowed.num_layers)


def balance(costs: Sequence[float], cells: Sequence[range]) -> float:
    """Returns the mean cost of a cell over the largest.

    1 is perfect, 1/K is one cell doing all the work. It is the share of the time that devices are
    busy once the pipeline is full.
    """
    if not cells:
        raise ValueError('balance of no cells; give at least one range of layers.')
    sums = [math.fsum(costs[layer] for layer in cell) for cell in cells]
    return math.fsum(sums) / len(sums) / max(sums) if max(sums) > 0 else 1.0


def _bottleneck(cost_sum: list[int], exact_costs: list[int], num_cells: int) -> int:
    """The cost of the slowest cell of the best partition."""
    total = cost_sum[-1]

    def can_cover(ceiling: int) -> bool:
        stop = 0
        for _ in range(num_cells):
            stop = bisect_right(cost_sum, cost_sum[stop] + ceiling) - 1
        return stop == len(exact_costs)

    return _smallest(max(max(exact_costs), -(-total // num_cells)), total, can_cover)


def _least_squares(cost_sum: list[int], num_cells: int, ceiling: int) -> Cells:
    """The partition with the least sum of squared cell costs under the ceiling.

    The mean of the costs is fixed, so that it has the least variance too.
    """
    num_layers = len(cost_sum) - 1
    scale = _scale(cost_sum[-1], num_layers)
    sums = [scale * cost + i for i, cost in enumerate(cost_sum)]

    best = {0: 0}  # j -> least sum of squares of the first k cells over layers 0..j-1
    best_start: list[dict[int, int]] = []  # [k][j] -> where the last of those cells starts
    for k in range(num_cells):
        starts = list(best)  # ascending
        num_cells_after = num_cells - 1 - k
        stops = range(k + 1, num_layers - num_cells_after + 1) if num_cells_after else [num_layers]
        rows = []
        for stop in stops:
            left = bisect_left(starts, bisect_left(cost_sum, cost_sum[stop] - ceiling))
            right = bisect_left(starts, stop) - 1
            if left <= right:
                rows.append((stop, left, right))
        chosen = _row_minima(rows, starts, [best[i] for i in starts], sums)
        best = {stop: best[i] + (sums[stop] - sums[i]) ** 2 for stop, i in chosen.items()}
        best_start.append(chosen)
    return _traced_back(best_start, num_layers)


def _scale(total: int, num_layers: int) -> int:
    """What costs are multiplied by before each layer costs 1 more.

    All those ones must never add up to a real difference:
    (s c + n)^2 = s^2 c^2 + 2 s c n + n^2, with c <= total and n <= L.
    """
    return 2 * total * num_layers + num_layers**2 + 1


def _traced_back(best_start: list[dict[int, int]], num_layers: int) -> Cells:
    """The cells, from where the best last cell starts for every number of cells and layers."""
    cells_from_last, stop = [], num_layers
    for start_of in reversed(best_start):
        cells_from_last.append(range(start_of[stop], stop))
        stop = start_of[stop]
    return tuple(reversed(cells_from_last))


def _row_minima(rows: list[tuple[int, int, int]], starts: list[int], before: list[int],
                sums: list[int]) -> dict[int, int]:
    """The leftmost best start of each row: stop -> start, ascending.

    Args:
      rows: (stop, first column, last column).
      starts: the start of each column.
      before: the least sum of squares of the cells before each start.
      sums: the cost of the layers before each one.
    """
    start_sums = [sums[i] for i in starts]
    best_column = [0] * len(rows)
    pending = [(0, len(rows), 0, len(starts) - 1)]
    while pending:
        top, bottom, left, right = pending.pop()
        if top == bottom:
            continue
        middle = (top + bottom) // 2
        stop, first, last = rows[middle]
        first, last, stop_sum = max(first, left), min(last, right), sums[stop]
        columns = zip(before[first:last + 1], start_sums[first:last + 1], strict=True)
        squares = [squares_before + (stop_sum - start_sum) ** 2
                   for squares_before, start_sum in columns]
        column = best_column[middle] = first + squares.index(min(squares))
        pending += [(top, middle, left, column), (middle + 1, bottom, column, right)]
    return {stop: starts[column] for (stop, _, _), column in zip(rows, best_column, strict=True)}


def _check(costs: Sequence[float], num_cells: int, rule: str) -> None:
    num_layers = len(costs)
    if rule not in RULES:
        raise ValueError(f"rule={rule!r} is not a rule; use 'bottleneck' or 'variance'.")
    if not num_layers:
        raise ValueError('the network has no layers, and a cell cannot be empty; give it some.')
    if num_cells < 1:
        raise ValueError(f'num_cells={num_cells} is not a number of cells; use 1 to {num_layers}, '
                         'the number of layers.')
    if num_cells > num_layers:
        raise ValueError(
            f'num_cells={num_cells} is more than the {counted(num_layers, "layer")}, and a cell '
            f'cannot be empty; use at most {counted(num_layers, "cell")}, or split the network '
            'into more layers.')
    for i, cost in enumerate(costs):
        if not (math.isfinite(cost) and cost >= 0):
            raise ValueError(f'costs[{i}]={cost} is not a finite number of 0 or more; correct the '
                             f'estimate for layer {i}.')


def _as_integers(amounts: Sequence[float]) -> tuple[list[int], Fraction]:
    """Returns integers n and a unit such that every amount is exactly n * unit."""
    exact = [Fraction(int(amount) if isinstance(amount, Integral) else float(amount))
             for amount in amounts]
    denominator = math.lcm(*(amount.denominator for amount in exact))
    integers = [amount.numerator * (denominator // amount.denominator) for amount in exact]
    factor = math.gcd(*integers) or 1
    return [n // factor for n in integers], Fraction(factor, denominator)


def _sums(amounts: list[int]) -> list[int]:
    return [0, *accumulate(amounts)]


def _smallest(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The smallest number in low..high for which `holds` is true.

    It stays true above, and is true at `high`.
    """
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
