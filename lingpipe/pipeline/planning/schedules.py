"""Schedules by name, each with a device for every cell: gpipe, 1f1b, zb_h1 and forward.

schedule.py says what a schedule is. In grids a row is a device, a column a unit of time; F and B
take a unit each, the last cell's B (which is both) takes two: `B0 --`.
"""

import difflib
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from lingpipe.pipeline.planning.schedule import (
    Schedule,
    Slot,
    check_backward_cells,
    check_sizes,
)


# gpipe, K = 3, M = 4:    F0 F1 F2 F3 .. .. B0 B1 .. B2 .. B3
#                         .. F0 F1 F2 F3 B0 B1 .. B2 .. B3 ..
#                         .. .. B0 -- B1 -- B2 -- B3 -- .. ..
def gpipe(num_cells: int, num_micro_batches: int,
          backward_cells: Collection[int] | None = None) -> Schedule:
    """All forwards, then all backwards.

    This is arXiv 1811.06965, figure 2c, with backwards in ascending order. A cell holds up to M
    micro-batches. With the same cost f of every F and b of every B, and free transfers, a step
    takes (M + K - 1)(f + b) and the bubble's share is (K - 1)/(M + K - 1).
    """
    return _training('gpipe', num_cells, num_micro_batches, backward_cells,
                     lambda k: num_micro_batches)


# 1f1b, K = 3, M = 4:     F0 F1 F2 .. .. B0 F3 B1 .. B2 .. B3
#                         .. F0 F1 .. B0 F2 B1 F3 B2 .. B3 ..
#                         .. .. B0 -- B1 -- B2 -- B3 -- .. ..
def one_f_one_b(num_cells: int, num_micro_batches: int,
                backward_cells: Collection[int] | None = None) -> Schedule:
    """One forward, one backward (PipeDream-flush, arXiv 2006.09503; arXiv 2104.04473, section 2.2).

    Cell k runs min(K - k, M) forwards and then, in turn, a backward and a forward until the
    forwards run out. So it never holds more than K - k micro-batches, and for equal costs and free
    transfers the step takes as long as gpipe's. Transfers that take time, or recomputation, cost
    it more than gpipe, which has more forwards to run while it waits. A cell without B is not held
    back: it runs all its forwards at once.
    """
    return _training('1f1b', num_cells, num_micro_batches, backward_cells,
                     lambda k: num_cells - k)


# zb_h1, K = 3, M = 4:    F0 F1 F2 .. .. B0 W0 F3 B1 W1 B2 W2 B3 W3
#                         .. F0 F1 .. B0 F2 B1 W0 F3 B2 W1 B3 W2 W3
#                         .. .. B0 -- B1 -- B2 -- W0 B3 -- W1 W2 W3
def zb_h1(num_cells: int, num_micro_batches: int,
          backward_cells: Collection[int] | None = None) -> Schedule:
    """1f1b with split backwards (ZB-H1 of arXiv 2401.10241, section 2.2).

    Cell k runs its forwards ahead as in 1f1b and delays its first W until k more of its B have run.
    So every cell holds up to K micro-batches, as many as 1f1b's first.
    """
    apart = _training('zb_h1', num_cells, num_micro_batches, backward_cells,
                      lambda k: num_cells - k)

    def with_weights(k: int, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        """Those of cell k, with a W behind each B from the k-th on, and the rest at the end."""
        order = []
        for slot in slots:
            order.append(slot)
            if slot.kind == 'B' and slot.micro_batch >= k:
                order.append(Slot('W', k, slot.micro_batch - k))
        if k in apart.backward_cells:
            first_left = max(0, num_micro_batches - k)
            order += _slots('W', k, range(first_left, num_micro_batches))
        return tuple(order)

    devices = tuple(with_weights(k, slots) for k, slots in enumerate(apart.devices))
    return replace(apart, devices=devices)


# forward, K = 3, M = 4:  F0 F1 F2 F3 .. ..
#                         .. F0 F1 F2 F3 ..
#                         .. .. F0 F1 F2 F3
def forward_only(num_cells: int, num_micro_batches: int) -> Schedule:
    """Forwards of all cells, the last included, and no backward: evaluation and decoding."""
    check_sizes(num_cells, num_micro_batches)
    devices = tuple(_slots('F', k, range(num_micro_batches)) for k in range(num_cells))
    return Schedule('forward', num_cells, num_micro_batches, devices, frozenset())


def make_schedule(name: str, num_cells: int, num_micro_batches: int,
                  backward_cells: Collection[int] | None = None) -> Schedule:
    """Builds the schedule of that name: 'gpipe', '1f1b', 'zb_h1' or 'forward'.

    Args:
      name: which schedule.
      num_cells: K, at least 1.
      num_micro_batches: M, at least 1; fewer than K is allowed.
      backward_cells: the cells that have a backward, all by default; the last always has.
        'forward' has none and does not look at it.

    Raises:
      ValueError: an unknown name, a size below 1, or a backward cell that does not exist.
    """
    builders: dict[str, Callable[[], Schedule]] = {
        'gpipe': lambda: gpipe(num_cells, num_micro_batches, backward_cells),
        '1f1b': lambda: one_f_one_b(num_cells, num_micro_batches, backward_cells),
        'zb_h1': lambda: zb_h1(num_cells, num_micro_batches, backward_cells),
        'forward': lambda: forward_only(num_cells, num_micro_batches),
    }
    if name not in builders:
        nearest = difflib.get_close_matches(str(name), builders, n=1, cutoff=0.0)[0]
        raise ValueError(f'schedule {name!r} is unknown; did you mean {nearest!r}? Use one of '
                         f'{", ".join(builders)}.')
    return builders[name]()


def _training(name: str, num_cells: int, num_micro_batches: int,
              backward_cells: Collection[int] | None, ahead: Callable[[int], int]) -> Schedule:
    """A schedule whose cell k runs `ahead(k)` forwards before its first backward.

    From then on it takes turns.
    """
    check_sizes(num_cells, num_micro_batches)
    last = num_cells - 1
    cells = range(num_cells) if backward_cells is None else backward_cells
    cells_with_backward = frozenset(cells) | {last}
    check_backward_cells(cells_with_backward, num_cells)

    def slots(k: int) -> tuple[Slot, ...]:
        """Those of cell k, in their order."""
        forwards = () if k == last else _slots('F', k, range(num_micro_batches))
        if k not in cells_with_backward:
            return forwards

        order = list(forwards[:ahead(k)])
        for m, backward in enumerate(_slots('B', k, range(num_micro_batches))):
            order += [backward, *forwards[ahead(k) + m:ahead(k) + m + 1]]
        return tuple(order)

    return Schedule(name, num_cells, num_micro_batches, tuple(slots(k) for k in range(num_cells)),
                    cells_with_backward)


def _slots(kind: str, cell: int, micro_batches: Iterable[int]) -> tuple[Slot, ...]:
    return tuple(Slot(kind, cell, m) for m in micro_batches)
