"""Cell times: how long each slot of a cell takes."""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lingpipe.pipeline.planning.schedule import TASK_KINDS, Schedule, Slot
from lingpipe.wording.counts import counted


@dataclass(frozen=True)
class CellTimes:
    """The times of the slots of K cells for one micro-batch, all in the same unit.

    Attributes:
      forward: [K] of F.
      backward: [K] of the whole backward without recomputation; not read for a cell without B.
      weight: [K] the part of it that W takes if the B is split.
      repeat: [K] what the backward takes to run the forward, or a part of it, again; if there is an
        R, this is the time of that. Not read for the last cell, whose forward has just run.
      split: [K] what it costs to split a backward, half of it in its B and half in its W: what one
        hands over to the other goes through memory.
    """
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    weight: tuple[float, ...]
    repeat: tuple[float, ...]
    split: tuple[float, ...]

    @property
    def num_cells(self) -> int:
        """K."""
        return len(self.forward)

    def of(self, schedule: Schedule) -> Callable[[Slot], float]:
        """The function that says how long a slot of the schedule takes."""
        seconds = self._seconds_of_tasks
        return lambda slot: seconds[slot[1], schedule.task_kind(slot)]

    @functools.cached_property
    def _seconds_of_tasks(self) -> dict[tuple[int, str], float]:
        """(cell, kind of compiled task) -> how long it takes."""
        return {(k, kind): self.of_task(k, kind)
                for k in range(self.num_cells) for kind in TASK_KINDS}

    def of_task(self, cell: int, task_kind: str) -> float:
        """How long a compiled task of a cell takes; see Schedule.task_kind."""
        if task_kind == 'F':
            return self.forward[cell]
        if task_kind == 'R':
            return self.repeat[cell]
        if task_kind.startswith('W'):
            return self.weight[cell] + self.split[cell] / 2

        is_last = cell == self.num_cells - 1
        forward = 0.0 if task_kind.endswith('_after_R') else self.repeat[cell]
        if is_last:
            forward = self.forward[cell]
        if task_kind.startswith('B_split'):
            return forward + self.backward[cell] - self.weight[cell] + self.split[cell] / 2
        return forward + self.backward[cell]


def cell_times(
    forward: Sequence[float],
    backward: Sequence[float],
    weight: Sequence[float] | None = None,
    recompute: bool | Sequence[float] = False,
    split: float | Sequence[float] = 0.0,
) -> CellTimes:
    """Returns CellTimes, checked; see there.

    Args:
      forward: [K].
      backward: [K].
      weight: [K] at most those of `backward`; half of them by default.
      recompute: [K] the times of recomputation, where True stands for that of the forward; or True
        or False for all cells. The last cell has none, whatever is said of it.
      split: of all cells, or [K].

    Raises:
      ValueError: they are not K finite numbers of 0 or more, or W takes longer than the backward.
    """
    num_cells = len(forward)
    forward = per_cell('forward_s', forward, num_cells)
    backward = per_cell('backward_s', backward, num_cells)
    if weight is None:
        weight = [seconds / 2 for seconds in backward]
    weight = per_cell('weight_s', weight, num_cells)
    for k in range(num_cells):
        if weight[k] > backward[k]:
            raise ValueError(f'weight_s[{k}]={weight[k]} is more than backward_s[{k}]='
                             f'{backward[k]}, of which it is a part; correct the cost of cell {k}.')

    recomputes = [recompute] * num_cells if isinstance(recompute, bool) else recompute
    per_cell('recompute', recomputes, num_cells)
    repeat = [seconds if again is True else float(again)
              for seconds, again in zip(forward, recomputes, strict=True)]
    splits = split if isinstance(split, Sequence) else [split] * num_cells
    return CellTimes(tuple(forward), tuple(backward), tuple(weight),
                     tuple(repeat),
                     tuple(per_cell('split_s', splits, num_cells)))


def per_cell(name: str, amounts: Sequence[float] | None, num_cells: int) -> Sequence[float]:
    """[K] the amounts, or zeros if there are none.

    Raises:
      ValueError: they are not K finite numbers of 0 or more.
    """
    if amounts is None:
        return [0.0] * num_cells
    if len(amounts) != num_cells:
        raise ValueError(f'{name} has {counted(len(amounts), "entry")} for '
                         f'{counted(num_cells, "cell")}; give one a cell.')
    for k, amount in enumerate(amounts):
        if not (math.isfinite(amount) and amount >= 0):
            raise ValueError(f'{name}[{k}]={amount} is not a finite number of 0 or more; correct '
                             f'the cost of cell {k}.')
    return amounts
