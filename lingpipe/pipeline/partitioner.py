"""Cuts a sequence of layers into K consecutive cells, exactly.

Heuristics that move layers between neighbouring cells stop in local optima, and float sums make
equal cells look unequal. Here every cost becomes an integer (a float is a fraction whose denominator
is a power of two, so nothing is rounded), and dynamic programming over prefixes finds the optimum:

    best[k][j] = min over i of  best[k - 1][i] + (cost of layers i..j-1) ** 2

Read as a matrix with a row a j and a column an i, that sum is Monge, so the leftmost best i never
moves left as j grows, and divide and conquer fills a row of cells in O(L log L) instead of O(L^2).
A ceiling on the cost or the bytes of a cell keeps this true: it removes columns from the left of a
row, never fewer from a later row, so wherever two rows could disagree all four entries exist.

L layers, K cells, k a cell and the device that runs it.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from numbers import Integral

RULES = ('bottleneck', 'variance')


def partition(
    costs: Sequence[float],
    num_cells: int,
    *,
    rule: str = 'bottleneck',
    layer_bytes: Sequence[float] | None = None,
    device_bytes: float | Sequence[float] | None = None,
) -> tuple[range, ...]:
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
      layer_bytes: [L] bytes each layer occupies on its device. Without `device_bytes` they do not matter.
      device_bytes: limit on the bytes of a cell, one for all devices or [K], one a cell; inf is no limit.

    Raises:
      ValueError: an argument breaks the above, or no partition fits `device_bytes`.
    """
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
    _check_amounts('costs', costs)
    exact_costs, _ = _as_integers(costs)
    byte_sum, limits = _memory(num_layers, num_cells, layer_bytes, device_bytes)

    cells = _Cells(_sums(exact_costs), byte_sum, limits)
    return _least_squares(cells, _bottleneck(cells, exact_costs) if rule == 'bottleneck' else sum(exact_costs))


def _bottleneck(cells: '_Cells', exact_costs: list[int]) -> int:
    """The cost of the slowest cell of the best partition."""
    total = sum(exact_costs)
    return _smallest(max(max(exact_costs), -(-total // len(cells.limits))), total, cells.can_cover)


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
        cells = _Cells(_sums(exact_costs), [0] * (stop + 1), [0] * (num_cells - 1))
        slowest, last = float(_bottleneck(cells, exact_costs) * unit), sum(fused_costs[stop:])
        # Where rounding decides, it is that of the sums which are compared in the end.
        return (cut(stop)[0] if math.isclose(slowest, last) else slowest) >= last

    # The first stop at which the cells before the last are no faster than it.
    low = _smallest(num_cells - 1, len(costs) - 1, is_crossed)
    found = []
    for stop in {low, max(low - 1, num_cells - 1)}:
        slowest, cells = cut(stop)
        found.append((max(slowest, sum(fused_costs[stop:])), -stop, cells))
    return min(found)[2]


def balance(costs: Sequence[float], cells: Sequence[range]) -> float:
    """Returns the mean cost of a cell over the largest: 1 is perfect, 1/K is one cell doing all the work.

    It is the share of the time that devices are busy once the pipeline is full.
    """
    if not cells:
        raise ValueError('balance of no cells; give at least one range of layers.')
    sums = [math.fsum(costs[layer] for layer in cell) for cell in cells]
    return math.fsum(sums) / len(sums) / max(sums) if max(sums) > 0 else 1.0


class _Cells:
    """What a cell may hold: consecutive layers of at most `ceiling` cost and `limits[k]` bytes."""

    def __init__(self, cost_sum: list[int], byte_sum: list[int], limits: list[int]):
        self.cost_sum = cost_sum  # [L + 1], entry j is the cost of layers 0..j-1
        self.byte_sum = byte_sum
        self.limits = limits  # [K]
        self.num_layers = len(cost_sum) - 1
        # Where cell k cannot start: at a layer that does not fit its device, or after the last layer.
        walls = {limit: [*self._too_big(limit), self.num_layers] for limit in set(limits)}
        self.walls = [walls[limit] for limit in limits]

    def _too_big(self, limit: int) -> list[int]:
        return [i for i in range(self.num_layers) if self.byte_sum[i + 1] - self.byte_sum[i] > limit]

    def furthest_stop(self, k: int, start: int, ceiling: int) -> int:
        by_cost = bisect_right(self.cost_sum, self.cost_sum[start] + ceiling)
        return min(by_cost, bisect_right(self.byte_sum, self.byte_sum[start] + self.limits[k])) - 1

    def furthest_start(self, k: int, stop: int, ceiling: int) -> int:
        by_cost = bisect_left(self.cost_sum, self.cost_sum[stop] - ceiling)
        return max(by_cost, bisect_left(self.byte_sum, self.byte_sum[stop] - self.limits[k]))

    def can_cover(self, ceiling: int) -> bool:
        """Whether K cells cover all layers; `ceiling` is at least the cost of the costliest layer.

        Keeps, as runs of consecutive numbers, how many layers the first k cells can cover. Filling
        each cell greedily would not do: a device that is too small for a layer needs another one.
        """
        runs = [(0, 0)]
        for k in range(len(self.limits)):
            reached: list[tuple[int, int]] = []
            for first, last in runs:
                walls = self.walls[k]
                for wall in [*walls[bisect_left(walls, first) : bisect_right(walls, last)], last + 1]:
                    if first < wall:  # a cell starting anywhere in first..wall-1 holds a layer
                        low, high = first + 1, self.furthest_stop(k, wall - 1, ceiling)
                        if reached and low <= reached[-1][1] + 1:
                            low = reached.pop()[0]
                        reached.append((low, high))
                    first = wall + 1
            runs = reached
        return bool(runs) and runs[-1][1] == self.num_layers


def _least_squares(cells: _Cells, ceiling: int) -> tuple[range, ...]:
    """The partition with the least sum of squared cell costs (their mean is fixed) under the ceiling."""
    num_layers, num_cells = cells.num_layers, len(cells.limits)
    # A layer costs 1 more and everything else is scaled so that all those ones never add up to a real
    # difference: (s c + n)^2 = s^2 c^2 + 2 s c n + n^2, with c <= total and n <= L.
    scale = 2 * cells.cost_sum[-1] * num_layers + num_layers**2 + 1
    sums = [scale * cost + i for i, cost in enumerate(cells.cost_sum)]

    best = {0: 0}  # j -> least sum of squares of the first k cells over layers 0..j-1
    best_start: list[dict[int, int]] = []  # [k][j] -> where the last of those cells starts
    for k in range(num_cells):
        starts = list(best)  # ascending
        rows = []
        for stop in range(k + 1, num_layers - (num_cells - k - 1) + 1) if k < num_cells - 1 else [num_layers]:
            left = bisect_left(starts, cells.furthest_start(k, stop, ceiling))
            right = bisect_left(starts, stop) - 1
            if left <= right:
                rows.append((stop, left, right))
        chosen = _row_minima(rows, starts, [best[i] for i in starts], sums)
        best = {stop: best[i] + (sums[stop] - sums[i]) ** 2 for stop, i in chosen.items()}
        best_start.append(chosen)

    found, stop = [], num_layers
    for chosen in reversed(best_start):
        found.append(range(chosen[stop], stop))
        stop = chosen[stop]
    return tuple(reversed(found))


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


def _memory(
    num_layers: int,
    num_cells: int,
    layer_bytes: Sequence[float] | None,
    device_bytes: float | Sequence[float] | None,
) -> tuple[list[int], list[int]]:
    """Returns [L + 1] sums of bytes and [K] limits as integers of one unit, or raises if nothing fits."""
    if layer_bytes is not None:
        if len(layer_bytes) != num_layers:
            raise ValueError(f'layer_bytes has {len(layer_bytes)} entries for {num_layers} costs; give one a layer.')
        _check_amounts('layer_bytes', layer_bytes)
    if device_bytes is None:
        return [0] * (num_layers + 1), [0] * num_cells
    if layer_bytes is None:
        raise ValueError('device_bytes limits the bytes of a cell but layer_bytes is missing; give the bytes of each layer.')
    given = list(device_bytes) if isinstance(device_bytes, Iterable) else [device_bytes] * num_cells
    if len(given) != num_cells:
        raise ValueError(f'device_bytes has {len(given)} limits for {num_cells} cells; give one a cell, or one number for all.')
    for k, limit in enumerate(given):
        if not limit >= 0:
            raise ValueError(f'device_bytes of cell {k} is {limit}, not a number of bytes; use 0 or more, or inf for no limit.')

    no_limit = math.ceil(math.fsum(layer_bytes)) + 1
    exact, unit = _as_integers([*layer_bytes, *(min(limit, no_limit) for limit in given)])
    exact_bytes, limits = exact[:num_layers], exact[num_layers:]

    def text(amount: int) -> str:
        found = amount * unit
        return f'{int(found):,}' if found.denominator == 1 else f'{float(found):,.6g}'

    largest = max(range(num_layers), key=exact_bytes.__getitem__)
    if exact_bytes[largest] > max(limits):
        raise ValueError(
            f'layer {largest} alone needs {text(exact_bytes[largest])} bytes and the largest device holds {text(max(limits))}; '
            f'a layer cannot be cut, so split it in two layers or raise device_bytes.'
        )
    byte_sum = _sums(exact_bytes)

    def fits(extra: int) -> bool:
        return _Cells([0] * (num_layers + 1), byte_sum, [limit + extra for limit in limits]).can_cover(0)

    if not fits(0):
        extra = _smallest(0, byte_sum[-1], fits)
        need = f'needs {text(min(limits) + extra)} bytes on a device that holds {text(min(limits))}'
        if min(limits) != max(limits):
            need = f'needs {text(extra)} bytes more than device_bytes on each device'
        raise ValueError(
            f'no partition of {num_layers} layers into {num_cells} cells fits device_bytes: the best {need}; '
            f'use more cells, recomputation, smaller micro-batches or larger devices.'
        )
    return byte_sum, limits


def _check_amounts(name: str, amounts: Sequence[float]) -> None:
    for i, amount in enumerate(amounts):
        if not (math.isfinite(amount) and amount >= 0):
            raise ValueError(f'{name}[{i}]={amount} is not a finite number of 0 or more; correct the estimate for layer {i}.')


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
