"""Cuts a sequence of layers into K consecutive cells, exactly.

Heuristics that move layers between neighbouring cells stop in local optima, and float sums make
equal cells look unequal. Here every cost becomes an integer (a float is a fraction whose denominator
is a power of two, so nothing is rounded), and dynamic programming over prefixes finds the optimum:

    best[k][j] = min over i of  best[k - 1][i] + (cost of layers i..j-1) ** 2

Read as a matrix with a row a j and a column an i, that sum is Monge, so the leftmost best i never
moves left as j grows, and divide and conquer fills a row of cells in O(L log L) instead of O(L^2).
A ceiling on the cost of a cell keeps this true: it removes columns from the left of a row, never fewer
from a later row, so wherever two rows could disagree all four entries exist. A limit on memory does not:
see `partition_among`.

L layers, K cells, k a cell.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import accumulate
from numbers import Integral

RULES = ('bottleneck', 'variance')


def partition(costs: Sequence[float], num_cells: int, *, rule: str = 'bottleneck') -> tuple[range, ...]:
    """Returns the best K consecutive, non-empty ranges of layers that cover all layers in order.

    Ties are broken as if every layer cost an infinitesimal more than it says (so that layers without
    a cost are shared out evenly); where even that ties, later cells get more layers, because earlier
    cells hold more micro-batches. The answer is exact and depends on nothing but the arguments.

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
    ceiling = _bottleneck(cost_sum, exact_costs, num_cells) if rule == 'bottleneck' else cost_sum[-1]
    return _least_squares(cost_sum, num_cells, ceiling)


def partition_fused(costs: Sequence[float], fused_costs: Sequence[float], num_cells: int) -> tuple[range, ...]:
    """As `partition` by bottleneck, where a layer in the last cell costs something else: the fused last cell recomputes nothing.

    The slowest of the cells before it can only grow with the number of layers they hold, and the last can only shrink, so the best
    place to cut lies where the two cross. To find it, the cost of the slowest is enough, which is known long before the cells are.

    Args:
      costs: [L] cost of each layer in any cell but the last.
      fused_costs: [L] its cost in the last cell.
      num_cells: K, from 1 to L.
    """
    if num_cells == 1 or num_cells > len(costs):
        return partition(fused_costs, num_cells)

    def cut(stop: int) -> tuple[float, tuple[range, ...]]:
        cells = partition(costs[:stop], num_cells - 1)
        return max(sum(costs[i] for i in cell) for cell in cells), (*cells, range(stop, len(costs)))

    def is_crossed(stop: int) -> bool:
        exact_costs, unit = _as_integers(costs[:stop])
        slowest, last = float(_bottleneck(_sums(exact_costs), exact_costs, num_cells - 1) * unit), sum(fused_costs[stop:])
        # Where rounding decides, it is that of the sums which are compared in the end.
        return (cut(stop)[0] if math.isclose(slowest, last) else slowest) >= last

    # The first stop at which the cells before the last are no faster than it.
    low = _smallest(num_cells - 1, len(costs) - 1, is_crossed)
    found = []
    for stop in {low, max(low - 1, num_cells - 1)}:
        slowest, cells = cut(stop)
        found.append((max(slowest, sum(fused_costs[stop:])), -stop, cells))
    return min(found)[2]


def partition_among(
    costs: Sequence[float],
    num_cells: int,
    stops: Callable[[int, int], int],
    *,
    rule: str = 'bottleneck',
    fused_costs: Sequence[float] | None = None,
) -> tuple[range, ...] | None:
    """As `partition`, among those partitions whose cells are all allowed; None if there is none.

    Which spans of layers fit a device follows no order (one layer more may read less from other cells), so nothing is assumed of
    `stops`, and a sum of squares over arbitrary gaps is not Monge. But few places are left where a cell can begin so that the cells
    before it and those after it exist and none is slower than the best bottleneck; over those plain dynamic programming is fast enough.

    Args:
      costs: [L] cost of each layer.
      num_cells: K, from 1 to L.
      stops: of (k, start), the layers at which a cell k that begins at layer `start` may end, as bits of an integer: bit j stands for
        the cell of the layers start..j-1.
      rule: as of `partition`.
      fused_costs: [L] cost of each layer in the last cell; `costs` by default.
    """
    _check(costs, num_cells, rule)
    num_layers = len(costs)
    exact_costs, _ = _as_integers([*costs, *(costs if fused_costs is None else fused_costs)])
    sums_of = [_sums(exact_costs[:num_layers])] * (num_cells - 1) + [_sums(exact_costs[num_layers:])]

    def within(k: int, start: int, ceiling: int) -> int:
        """`stops`, those left out where the cell costs more than the ceiling or what follows has too few layers."""
        furthest = bisect_right(sums_of[k], sums_of[k][start] + ceiling) - 1
        room = num_layers - (num_cells - 1 - k)
        bits = stops(k, start) & ((1 << min(furthest, room) + 1) - 1)
        return bits if k < num_cells - 1 else bits & (1 << num_layers)

    def starts_of(ceiling: int) -> list[int]:
        """[K + 1] where cell k can begin so that the cells before it exist, as bits; the last entry is empty if there is no partition."""
        reached = [1]
        for k in range(num_cells):
            bits = 0
            for start in _bits(reached[k]):
                bits |= within(k, start, ceiling)
            reached.append(bits)
        return reached

    highest = max(sums[-1] for sums in sums_of)
    if not starts_of(highest)[-1]:
        return None
    ceiling = highest if rule == 'variance' else _smallest(0, highest, lambda ceiling: bool(starts_of(ceiling)[-1]))

    alive = starts_of(ceiling)
    for k in reversed(range(num_cells)):
        alive[k] = sum(1 << start for start in _bits(alive[k]) if within(k, start, ceiling) & alive[k + 1])
    scale = _scale(highest, num_layers)
    scaled, fused = ([scale * cost + i for i, cost in enumerate(sums)] for sums in (sums_of[0], sums_of[-1]))

    best = {0: 0}  # j -> least sum of squares of the first k cells over layers 0..j-1
    best_start: list[dict[int, int]] = []  # [k][j] -> where the last of those cells starts
    for k in range(num_cells):
        sums = scaled if k < num_cells - 1 else fused
        found: dict[int, int] = {}
        chosen: dict[int, int] = {}
        for start in _bits(alive[k]):
            for stop in _bits(within(k, start, ceiling) & alive[k + 1]):
                squares = best[start] + (sums[stop] - sums[start]) ** 2
                if stop not in found or squares < found[stop]:
                    found[stop], chosen[stop] = squares, start
        best = found
        best_start.append(chosen)
    return _traced_back(best_start, num_layers)


def balance(costs: Sequence[float], cells: Sequence[range]) -> float:
    """Returns the mean cost of a cell over the largest: 1 is perfect, 1/K is one cell doing all the work.

    It is the share of the time that devices are busy once the pipeline is full.
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


def _least_squares(cost_sum: list[int], num_cells: int, ceiling: int) -> tuple[range, ...]:
    """The partition with the least sum of squared cell costs (their mean is fixed) under the ceiling."""
    num_layers = len(cost_sum) - 1
    scale = _scale(cost_sum[-1], num_layers)
    sums = [scale * cost + i for i, cost in enumerate(cost_sum)]

    best = {0: 0}  # j -> least sum of squares of the first k cells over layers 0..j-1
    best_start: list[dict[int, int]] = []  # [k][j] -> where the last of those cells starts
    for k in range(num_cells):
        starts = list(best)  # ascending
        rows = []
        for stop in range(k + 1, num_layers - (num_cells - k - 1) + 1) if k < num_cells - 1 else [num_layers]:
            left = bisect_left(starts, bisect_left(cost_sum, cost_sum[stop] - ceiling))
            right = bisect_left(starts, stop) - 1
            if left <= right:
                rows.append((stop, left, right))
        chosen = _row_minima(rows, starts, [best[i] for i in starts], sums)
        best = {stop: best[i] + (sums[stop] - sums[i]) ** 2 for stop, i in chosen.items()}
        best_start.append(chosen)
    return _traced_back(best_start, num_layers)


def _scale(total: int, num_layers: int) -> int:
    """What costs are multiplied by so that a layer can cost 1 more, and all those ones never add up to a real difference.

    (s c + n)^2 = s^2 c^2 + 2 s c n + n^2, with c <= total and n <= L.
    """
    return 2 * total * num_layers + num_layers**2 + 1


def _traced_back(best_start: list[dict[int, int]], num_layers: int) -> tuple[range, ...]:
    found, stop = [], num_layers
    for chosen in reversed(best_start):
        found.append(range(chosen[stop], stop))
        stop = chosen[stop]
    return tuple(reversed(found))


def _bits(number: int) -> Iterator[int]:
    """The places of the ones, ascending."""
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


def _row_minima(rows: list[tuple[int, int, int]], starts: list[int], before: list[int], sums: list[int]) -> dict[int, int]:
    """For each row (stop, first column, last column), the leftmost best start: stop -> start, ascending."""
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
        squares = [b + (stop_sum - s) ** 2 for b, s in zip(before[first : last + 1], start_sums[first : last + 1], strict=True)]
        column = best_column[middle] = first + squares.index(min(squares))
        pending += [(top, middle, left, column), (middle + 1, bottom, column, right)]
    return {stop: starts[column] for (stop, _, _), column in zip(rows, best_column, strict=True)}


def _check(costs: Sequence[float], num_cells: int, rule: str) -> None:
    num_layers = len(costs)
    if rule not in RULES:
        raise ValueError(f"rule={rule!r} is not a rule; use 'bottleneck' or 'variance'.")
    if num_cells < 1:
        raise ValueError(f'num_cells={num_cells} is not a number of cells; use 1 to {num_layers}, the number of layers.')
    if num_cells > num_layers:
        raise ValueError(
            f'num_cells={num_cells} is more than the {num_layers} layers, and a cell cannot be empty; '
            f'use at most {num_layers} cells, or split the network into more layers.'
        )
    for i, cost in enumerate(costs):
        if not (math.isfinite(cost) and cost >= 0):
            raise ValueError(f'costs[{i}]={cost} is not a finite number of 0 or more; correct the estimate for layer {i}.')


def _as_integers(amounts: Sequence[float]) -> tuple[list[int], Fraction]:
    """Returns integers n and a unit such that every amount is exactly n * unit."""
    exact = [Fraction(int(amount) if isinstance(amount, Integral) else float(amount)) for amount in amounts]
    denominator = math.lcm(*(amount.denominator for amount in exact))
    integers = [amount.numerator * (denominator // amount.denominator) for amount in exact]
    factor = math.gcd(*integers) or 1
    return [n // factor for n in integers], Fraction(factor, denominator)


def _sums(amounts: list[int]) -> list[int]:
    return [0, *accumulate(amounts)]


def _smallest(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The smallest number in low..high for which `holds` is true; it stays true above, and at `high`."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
