"""A schedule: for each device, the ordered list of slots it runs in one step.

One representation serves every schedule, so one validator, one simulator and one runtime do too. A
list per device is all there is: when a slot starts follows from the order on its device and from
what it needs from other devices.

Three rules hold for every schedule here:
  * The last cell's forward and backward are one slot, its B: nothing lies between them. So a
    training schedule has no F for cell K-1, and K = 1 is M slots B.
  * A cell's backwards run in ascending order of micro-batches. So gradients are summed in one order
    whatever the schedule, and the last cell never waits for a later micro-batch.
  * Cells before the first trainable layer may have no B at all. The last cell always has: its B
    computes the loss.

K cells, M micro-batches, k a cell, m a micro-batch. In grids a row is a device, a column a unit of
time; F and B take a unit each, the last cell's B (which is both) takes two: `B0 --`.
"""

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple


class Slot(NamedTuple):
    """One entry in a schedule: the work of one cell on one micro-batch."""

    kind: str  # 'F' forward, 'B' backward (with the forward, in the last cell)
    cell: int
    micro_batch: int

    def __str__(self) -> str:
        return f'{self.kind}(cell {self.cell}, micro-batch {self.micro_batch})'


@dataclass(frozen=True)
class Schedule:
    """What each device runs, in order."""

    name: str
    num_cells: int
    num_micro_batches: int
    devices: tuple[tuple[Slot, ...], ...]
    backward_cells: frozenset[int]  # cells that have B slots; none in a schedule without backward

    @cached_property
    def device_of(self) -> Mapping[Slot, int]:
        """The device of each slot."""
        return {slot: device for device, slots in enumerate(self.devices) for slot in slots}

    def is_fused(self, slot: Slot) -> bool:
        """Whether the slot is a forward and a backward in one: the B of the last cell."""
        return slot.kind == 'B' and slot.cell == self.num_cells - 1

    def slots_of(self, cell: int) -> tuple[Slot, ...]:
        """The slots that a complete schedule has for the cell, each exactly once."""
        has_backward = cell in self.backward_cells
        is_fused = has_backward and cell == self.num_cells - 1
        kinds = ('F',) * (not is_fused) + ('B',) * has_backward
        return tuple(Slot(kind, cell, m) for kind in kinds for m in range(self.num_micro_batches))


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
    """Builds the schedule of that name: 'gpipe', '1f1b' or 'forward'.

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


def check_sizes(num_cells: int, num_micro_batches: int) -> None:
    """Raises ValueError for a K or M below 1."""
    for name, number in (('num_cells', num_cells), ('num_micro_batches', num_micro_batches)):
        if number < 1:
            raise ValueError(f'{name}={number} makes no pipeline; use 1 or more.')


def check_backward_cells(cells: Collection[int], num_cells: int) -> None:
    """Raises ValueError for a cell that does not exist."""
    for k in sorted(cells):
        if not 0 <= k < num_cells:
            raise ValueError(f'backward_cells has cell {k} of {num_cells}; use cells 0 to '
                             f'{num_cells - 1}.')
