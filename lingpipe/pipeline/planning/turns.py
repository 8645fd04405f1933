"""Turns: schedules of F and B with one cell a device, gpipe, 1f1b and forward."""
from __future__ import annotations

from collections.abc import Callable, Iterable

from lingpipe.pipeline.planning.schedule import Schedule, Slot


# gpipe, K = 3, M = 4:    F0 F1 F2 F3 .. .. B0 B1 .. B2 .. B3
#                         .. F0 F1 F2 F3 B0 B1 .. B2 .. B3 ..
#                         .. .. B0 -- B1 -- B2 -- B3 -- .. ..
def gpipe(num_cells: int, num_micro_batches: int) -> Schedule:
    """All forwards, then all backwards.

    This is arXiv 1811.06965, figure 2c, with backwards in ascending order. A cell holds up to M
    micro-batches. With the same cost f of every F and b of every B, and free transfers, a step
    takes (M + K - 1)(f + b) and the bubble's share is (K - 1)/(M + K - 1).
    """
    return in_turns('gpipe', num_cells, num_micro_batches, lambda k: num_micro_batches)


# 1f1b, K = 3, M = 4:     F0 F1 F2 .. .. B0 F3 B1 .. B2 .. B3
#                         .. F0 F1 .. B0 F2 B1 F3 B2 .. B3 ..
#                         .. .. B0 -- B1 -- B2 -- B3 -- .. ..
def one_f_one_b(num_cells: int, num_micro_batches: int) -> Schedule:
    """One forward, one backward (PipeDream-flush, arXiv 2006.09503; arXiv 2104.04473, section 2.2).

    Cell k runs min(K - k, M) forwards and then, in turn, a backward and a forward until the
    forwards run out. So it never holds more than K - k micro-batches, and for equal costs and free
    transfers the step takes as long as gpipe's. Transfers that take time, or recomputation, cost
    it more than gpipe, which has more forwards to run while it waits. A cell without B is not held
    back: it runs all its forwards at once.
    """
    return in_turns('1f1b', num_cells, num_micro_batches, lambda k: num_cells - k)


# forward, K = 3, M = 4:  F0 F1 F2 F3 .. ..
#                         .. F0 F1 F2 F3 ..
#                         .. .. F0 F1 F2 F3
def forward_only(num_cells: int, num_micro_batches: int) -> Schedule:
    """Forwards of all cells, the last included, and no backward: evaluation and decoding."""
    devices = tuple(_slots('F', k, range(num_micro_batches)) for k in range(num_cells))
    return Schedule('forward', num_cells, num_micro_batches, devices, frozenset())


def in_turns(name: str, num_cells: int, num_micro_batches: int,
             ahead: Callable[[int], int]) -> Schedule:
    """A schedule whose cell k runs `ahead(k)` forwards, and then a backward and a forward in turn.

    The last cell, whose backwards are its forwards too, just runs these.
    """
    def slots(k: int) -> tuple[Slot, ...]:
        """Those of cell k, in their order."""
        is_last = k == num_cells - 1
        forwards = () if is_last else _slots('F', k, range(num_micro_batches))
        order = list(forwards[:ahead(k)])
        for m, backward in enumerate(_slots('B', k, range(num_micro_batches))):
            order += [backward, *forwards[ahead(k) + m:ahead(k) + m + 1]]
        return tuple(order)

    return Schedule(name, num_cells, num_micro_batches, tuple(slots(k) for k in range(num_cells)),
                    frozenset(range(num_cells)))


def _slots(kind: str, cell: int, micro_batches: Iterable[int]) -> tuple[Slot, ...]:
    return tuple(Slot(kind, cell, m) for m in micro_batches)
