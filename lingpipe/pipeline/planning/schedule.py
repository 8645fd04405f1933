"""A schedule: for each device, the ordered list of slots it runs in one step.

One representation serves every schedule, so one validator, one simulator and one runtime do too. A
list per device is all there is: when a slot starts follows from the order on its device and from
what it needs from other devices.

A slot is one of four kinds of work of a cell on a micro-batch:

    F   the forward
    B   the gradients of the cell's inputs, and those of its weights too unless it is split
    W   the gradients of the weights, which makes the B of the same cell and micro-batch *split*:
        other devices wait for B alone, so W may fill any later gap
    R   the forward once more, ahead of the B that would repeat it (early recomputation)

These rules hold for every schedule, and validation.py proves them:
  * Every F and B is there once, W and R at most once; F < R < B < W.
  * The last cell's forward and backward are one slot, its B: nothing lies between them. So a
    training schedule has no F and no R for cell K-1, and K = 1 is M slots B. Its W may be split.
  * The slots of a cell that run its forward ascend in micro-batches, and so do those that add up
    its gradients: W, or a B that is not split. So gradients are summed in one order whatever the
    schedule, and the last cell never waits for a later micro-batch.
  * Cells before the first trainable layer may have no B at all. The last cell always has: its B
    computes the loss.
  * All slots of a cell are on one device. A device may have any number of cells.

K cells, M micro-batches, k a cell, m a micro-batch. In grids a row is a device, a column a unit of
time; every kind takes a unit, the last cell's B (which is F and B) takes two: `B0 --`. Where some B
are split, those that are whole take another unit.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

KINDS = ('F', 'B', 'W', 'R')
TASK_KINDS = ('F', 'R', 'B', 'B_split', 'W', 'B_after_R', 'B_split_after_R', 'W_after_R')


class Slot(NamedTuple):
    """One entry in a schedule: the work of one cell on one micro-batch."""

    kind: str  # 'F', 'B', 'W' or 'R'; see the head of this file
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

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Computed once, since a schedule has thousands of slots."""
        return hash((self.name, self.num_cells, self.num_micro_batches, self.devices,
                     self.backward_cells))

    @cached_property
    def device_of(self) -> Mapping[Slot, int]:
        """The device of each slot."""
        return {slot: device for device, slots in enumerate(self.devices) for slot in slots}

    @cached_property
    def cells_of_lists(self) -> tuple[frozenset[int], ...]:
        """The cells of each device that have slots."""
        return tuple(frozenset(slot.cell for slot in slots) for slots in self.devices)

    @cached_property
    def tasks_of_lists(self) -> tuple[tuple[tuple[str, int], ...], ...]:
        """The compiled task and the cell of each slot, for each device."""
        return tuple(tuple((self.task_kind(slot), slot[1]) for slot in slots)
                     for slots in self.devices)

    def is_fused(self, slot: Slot) -> bool:
        """Whether the slot is a forward and a backward in one: the B of the last cell."""
        return slot.kind == 'B' and slot.cell == self.num_cells - 1

    def is_split(self, slot: Slot) -> bool:
        """Whether the slot is a B that leaves the gradients of the weights to a W."""
        return slot in self._split_backwards

    def is_recomputed_early(self, slot: Slot) -> bool:
        """Whether the slot is a B or W for which an R has repeated its cell's forward before."""
        return slot in self._after_r

    def runs_forward(self, slot: Slot) -> bool:
        """Whether the slot runs its cell's forward for the first time: F, or the last cell's B."""
        return slot.kind == 'F' or self.is_fused(slot)

    def adds_gradients(self, slot: Slot) -> bool:
        """Whether the slot adds to the sums of its cell's gradients: W, or a B that is whole."""
        return slot.kind == 'W' or slot.kind == 'B' and not self.is_split(slot)

    def task_kind(self, slot: Slot) -> str:
        """Returns which of its cell's compiled tasks the slot calls.

        It is the kind of the slot, with '_split' for a B that hands over to a W, and '_after_R' for
        a B or W whose forward an R has repeated: 'F', 'R', 'B', 'B_split', 'W', 'B_after_R',
        'B_split_after_R' or 'W_after_R'.
        """
        kind = slot[0]
        if kind == 'F' or kind == 'R':
            return kind
        if slot in self._split_backwards:
            kind = 'B_split'
        return f'{kind}_after_R' if slot in self._after_r else kind

    def task_kinds(self, cell: int) -> frozenset[str]:
        """Returns the kinds of compiled tasks that the slots of a cell call."""
        return frozenset(self.task_kind(slot) for slot in self.slots_of(cell))

    @cached_property
    def _split_backwards(self) -> frozenset[Slot]:
        return frozenset(Slot('B', k, m) for slots in self.devices for kind, k, m in slots
                         if kind == 'W')

    @cached_property
    def _after_r(self) -> frozenset[Slot]:
        return frozenset(Slot(kind, k, m) for slots in self.devices for other, k, m in slots
                         if other == 'R' for kind in 'BW')

    def slots_of(self, cell: int) -> tuple[Slot, ...]:
        """The slots of the cell in a complete schedule: all its F and B, and what it has of W, R.

        A cell without backward has no W and R, and the last one no R, whatever the lists say.
        """
        has_backward = cell in self.backward_cells
        is_fused = has_backward and cell == self.num_cells - 1
        kinds = ('F',) * (not is_fused) + ('B',) * has_backward
        extra_kinds = ('W',) * has_backward + ('R',) * (has_backward and not is_fused)
        micro_batches = range(self.num_micro_batches)
        required = [Slot(kind, cell, m) for kind in kinds for m in micro_batches]
        extra = [Slot(kind, cell, m) for kind in extra_kinds for m in micro_batches]
        return (*required, *(slot for slot in extra if slot in self.device_of))


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
