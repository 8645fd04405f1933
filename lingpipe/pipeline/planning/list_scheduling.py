"""List scheduling: the order that devices find for themselves, if each runs the best ready slot.

A step is played on paper. Whenever a device is free it chooses among the slots whose inputs have
arrived: a B, for which other devices wait; else an F, as long as its limit allows; else a W, which
nobody waits for. Which order comes out depends on the times of the slots, on the limits and on the
few choices of a `Policy`. The order of F and B may also be given: then W fill its gaps.

The obvious limit, an F only while the device has room, deadlocks where a device has several cells:
the first of them fills it, and the last, whose B would free it, finds no room. So room for one
micro-batch of every cell is kept free: an F that is the only one of its cell is always let in.

K cells, M micro-batches, k a cell, m a micro-batch.
"""
from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Callable, Sequence

from lingpipe.pipeline.planning.cell_times import CellTimes
from lingpipe.pipeline.planning.dependencies import Edges
from lingpipe.pipeline.planning.schedule import Schedule, Slot


@dataclasses.dataclass(frozen=True)
class Workload:
    """The slots to schedule, and the devices on which they run.

    Attributes:
      homes: [K] the device of each cell, counted from 0.
      num_micro_batches: M.
      backward_cells: the cells that have a B, the last included.
      edges: pairs (maker, reader).
      times: of the slots.
      delay: seconds from the end of a slot of one cell until one of another cell, on another
        device, can use its result.
      num_threads: how many threads all devices share; None: each has its own.
      slot_s: what it costs to call a slot, whatever it computes.
    """
    homes: tuple[int, ...]
    num_micro_batches: int
    backward_cells: frozenset[int]
    edges: Edges
    times: CellTimes
    delay: Callable[[int, int], float] = lambda sender, receiver: 0.0
    num_threads: int | None = None
    slot_s: float = 0.0

    @property
    def num_cells(self) -> int:
        """K."""
        return len(self.homes)

    @property
    def num_devices(self) -> int:
        """How many devices the cells are on."""
        return max(self.homes) + 1


@dataclasses.dataclass(frozen=True)
class Policy:
    """What a device prefers, and how much it may hold.

    Attributes:
      held: [K] what a cell holds for a micro-batch from its F on, in any unit.
      handed: [K] how much of it remains from the end of a split B to the end of its W.
      limits: [devices] how much a device may hold when it lets an F in.
      splits: whether backwards are split. One that nobody waits for is not, unless in `order`.
      deep_forwards_first: whether F of later cells go before those of earlier ones.
      deep_backwards_first: the same of B.
      order: [devices] F and B in the order in which each device must run them, if it is given.
    """
    held: Sequence[float]
    handed: Sequence[float]
    limits: Sequence[float]
    splits: bool = True
    deep_forwards_first: bool = True
    deep_backwards_first: bool = False
    order: Sequence[Sequence[Slot]] | None = None


def list_schedule(name: str, work: Workload, policy: Policy) -> Schedule | None:
    """Returns the schedule that the policy leads to, or None if it gets stuck.

    It can be stuck only if an order is given that the limits, or the other devices, do not allow.
    Slots ascend in every cell.
    """
    play = _Play(work, policy)
    play.run()
    if not play.is_complete:
        return None
    return Schedule(name, work.num_cells, work.num_micro_batches,
                    tuple(map(tuple, play.lists)), work.backward_cells)


class _Play:
    """A step on paper: what has run, and when. Its state changes while it runs."""

    def __init__(self, work: Workload, policy: Policy):
        cells = range(work.num_cells)
        self._work, self._policy = work, policy
        makers_of: list[list[int]] = [[] for _ in cells]
        readers_of: list[list[int]] = [[] for _ in cells]
        for maker, reader in sorted(work.edges):
            makers_of[reader].append(maker)
            readers_of[maker].append(reader)

        # [K] the cells whose F or B it needs, and how late each result is; then the devices that
        # need its own F or B, and how late.
        self._needed = {
            'F': [[(j, self._delay(j, k)) for j in makers_of[k]] for k in cells],
            'B': [[(j, self._delay(j, k)) for j in readers_of[k] if j in work.backward_cells]
                  for k in cells]}
        self._receivers = {
            kind: [[(work.homes[j], self._delay(k, j)) for j in receivers[k]
                    if work.homes[j] != work.homes[k]] for k in cells]
            for kind, receivers in (('F', readers_of), ('B', makers_of))}

        self._is_awaited = [any(j in work.backward_cells for j in makers) for makers in makers_of]
        self._is_split = [policy.splits and k in work.backward_cells
                          and (self._is_awaited[k] or policy.order is not None) for k in cells]
        self._is_fused = [k == work.num_cells - 1 and k in work.backward_cells for k in cells]
        self._cells_of = [[k for k in cells if work.homes[k] == device]
                          for device in range(work.num_devices)]
        self._seconds = {(kind, k): work.times.of_task(k, kind) for k in cells
                         for kind in ('F', 'W', 'B_split' if self._is_split[k] else 'B')}

        self._ends: dict[str, list[list[float]]] = {kind: [[] for _ in cells] for kind in 'FBW'}
        self._held = [0.0] * work.num_cells
        self._free_at = [0.0] * work.num_devices
        self._num_ordered = [0] * work.num_devices  # slots of policy.order that have run
        self._events = [(0.0, device) for device in range(work.num_devices)]
        self.lists: list[list[Slot]] = [[] for _ in range(work.num_devices)]

    @property
    def is_complete(self) -> bool:
        """Whether every slot has run."""
        return all(
            len(self._ends['B' if k in self._work.backward_cells else 'F'][k])
            == self._work.num_micro_batches for k in range(self._work.num_cells))

    def run(self) -> None:
        """Runs all slots that can ever run."""
        while self._events:
            now, device = heapq.heappop(self._events)
            if self._free_at[device] <= now:
                ready = min((turn for k in self._cells_of[device]
                             if (turn := self._ready(k, now)) is not None), default=None)
                if ready is not None:
                    self._start(ready[-1], now)

    def _ready(self, k: int, now: float) -> tuple[int, int, Slot] | None:
        """The slot that a cell would start now, behind its rank, of which the lowest goes first."""
        num_micro_batches, policy = self._work.num_micro_batches, self._policy
        num_forwards, num_backwards = len(self._ends['F'][k]), len(self._ends['B'][k])
        is_fused = self._is_fused[k]
        backward_rank = -k if policy.deep_backwards_first else k
        is_urgent = self._is_awaited[k] or policy.order is not None

        num_possible = num_micro_batches if is_fused else num_forwards
        has_b = (k in self._work.backward_cells and num_backwards < num_possible
                 and self._may_start('B', k, num_backwards, now))
        if has_b and is_urgent:
            return 0, backward_rank, Slot('B', k, num_backwards)
        if (not is_fused and num_forwards < num_micro_batches
                and self._may_start('F', k, num_forwards, now)):
            return 1, -k if policy.deep_forwards_first else k, Slot('F', k, num_forwards)
        if has_b:
            return 2, backward_rank, Slot('B', k, num_backwards)
        num_weights = len(self._ends['W'][k])
        if self._is_split[k] and num_weights < num_backwards:
            return 2, backward_rank, Slot('W', k, num_weights)
        return None

    def _may_start(self, kind: str, k: int, m: int, now: float) -> bool:
        """Whether it is the turn of an F or B, its inputs have arrived and there is room for it."""
        if self._policy.order is not None:
            device = self._work.homes[k]
            order, num_done = self._policy.order[device], self._num_ordered[device]
            if num_done == len(order) or order[num_done] != (kind, k, m):
                return False
        runs_forward = kind == 'F' or self._is_fused[k]
        if runs_forward and not (self._arrived('F', k, m, now) and self._has_room(k)):
            return False
        return kind == 'F' or self._arrived('B', k, m, now)

    def _arrived(self, kind: str, k: int, m: int, now: float) -> bool:
        """Whether the results of other cells are there for cell k."""
        ends_of = self._ends[kind]
        for j, delay_s in self._needed[kind][k]:
            ends = ends_of[j]
            if m >= len(ends) or ends[m] + delay_s > now:
                return False
        return True

    def _delay(self, sender: int, receiver: int) -> float:
        homes = self._work.homes
        is_sent = homes[sender] != homes[receiver]
        return self._work.delay(sender, receiver) if is_sent else 0.0

    def _has_room(self, k: int) -> bool:
        """Whether the device of cell k can hold one more micro-batch of it."""
        held = self._policy.held
        if not self._held[k] or k not in self._work.backward_cells:
            return True
        device = self._work.homes[k]
        reserved = math.fsum(max(self._held[j], held[j]) for j in self._cells_of[device])
        return reserved + held[k] <= self._policy.limits[device]

    def _start(self, slot: Slot, now: float) -> None:
        """Runs a slot, and wakes the devices that wait for it when it ends."""
        kind, k, _ = slot
        device = self._work.homes[k]
        is_split_backward = kind == 'B' and self._is_split[k]
        end = now + self._seconds['B_split' if is_split_backward else kind, k]
        self._ends[kind][k].append(end)
        self._free_at[device] = end
        self._num_ordered[device] += kind != 'W'
        self.lists[device].append(slot)
        self._hold(slot)

        heapq.heappush(self._events, (end, device))
        if kind != 'W':
            for receiver, delay_s in self._receivers[kind][k]:
                heapq.heappush(self._events, (end + delay_s, receiver))

    def _hold(self, slot: Slot) -> None:
        """Counts what the slot's cell holds once it has run."""
        kind, k, _ = slot
        if k not in self._work.backward_cells:
            return
        held, handed = self._policy.held[k], self._policy.handed[k]
        if kind == 'F' or self._is_fused[k] and kind == 'B':
            self._held[k] += held
        if kind == 'B':
            self._held[k] -= held - (handed if self._is_split[k] else 0.0)
        if kind == 'W':
            self._held[k] -= handed
