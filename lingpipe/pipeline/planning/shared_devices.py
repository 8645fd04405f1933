"""Shared devices: the order in which a device that has several cells runs their slots.

A device runs one slot at a time, so the lists of its cells must become one. No one order is best
for all placements and costs, so several are tried on paper, and the fastest is taken, the first of
equals:

* As soon as possible: each device runs what can start first; of those backwards, which end what is
  held, and then lower micro-batches.
* As if apart: the order in which slots would start if each cell had a device of its own, which is
  that of the schedule's kind.
* Neighbours as one: cells that follow each other on a device count as one cell in a schedule of
  that kind.
* Interleaved: cells dealt out to the devices in turn, in the order of arXiv 2104.04473, section
  2.2, for any kind of schedule that splits no backward.

In each of them the forwards and the backwards of a cell ascend. Only the first two keep the whole
order within a cell; in the others it may hold fewer micro-batches, or more, than the schedule's
kind would.

K cells, M micro-batches, k a cell, m a micro-batch.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace

from lingpipe.pipeline.planning.dependencies import Edges, chain, dependency_graph
from lingpipe.pipeline.planning.playing import play
from lingpipe.pipeline.planning.schedule import Schedule, Slot
from lingpipe.pipeline.planning.schedules import make_schedule


def orders_together(
    schedule: Schedule,
    devices: Sequence[Hashable],
    duration_of: Callable[[Slot], float],
    edges: Edges | None = None,
) -> list[Schedule]:
    """The schedule with all cells of a device in one list, by several rules, the fastest first.

    Args:
      schedule: with a list for every cell. One whose lists are of devices already, with more than
        one cell each, is all that is returned.
      devices: [K] of each cell, anything that equals that of another cell on the same device.
      duration_of: how long a slot takes.
      edges: pairs (maker, reader); the chain by default.
    """
    if len(set(devices)) == len(devices) or len(schedule.devices) < schedule.num_cells:
        return [schedule]
    edges = chain(schedule.num_cells) if edges is None else edges
    orders = [
        _as_soon_as_possible(schedule, devices, duration_of, edges),
        _as_if_apart(schedule, devices, duration_of, edges),
        _neighbours_as_one(schedule, devices, duration_of, edges),
        *_interleaved(schedule, devices),
    ]
    seconds = []
    for order in orders:
        try:
            seconds.append(max(end for _, end in play(order, duration_of, edges).values()))
        except ValueError:   # The devices would wait for each other.
            seconds.append(math.inf)
    in_turn = sorted(range(len(orders)), key=seconds.__getitem__)
    return [orders[i] for i in in_turn if seconds[i] < math.inf]


def _as_soon_as_possible(schedule: Schedule, devices: Sequence[Hashable],
                         duration_of: Callable[[Slot], float], edges: Edges) -> Schedule:
    graph = dependency_graph(schedule, edges)
    waiting = [list(reversed(slots)) for slots in schedule.devices]
    free_at = dict.fromkeys(devices, 0.0)
    ends: dict[Slot, float] = {}
    while any(waiting):
        start_of: dict[Slot, float] = {}
        for slot in (slots[-1] for slots in waiting if slots):
            if all(need in ends for need in graph[slot]):
                needs_end = (ends[need] for need in graph[slot])
                start_of[slot] = max([free_at[devices[slot.cell]], *needs_end])

        _, _, _, _, first = min((start, slot.kind, slot.micro_batch, -slot.cell, slot)
                                for slot, start in start_of.items())
        ends[first] = free_at[devices[first.cell]] = start_of[first] + duration_of(first)
        waiting[first.cell].pop()
    return _listed(schedule, devices, ends)


def _as_if_apart(schedule: Schedule, devices: Sequence[Hashable],
                 duration_of: Callable[[Slot], float], edges: Edges) -> Schedule:
    # Slots come after what they need, so those that start together stay in a possible order.
    spans = play(schedule, duration_of, edges)
    return _listed(schedule, devices, sorted(spans, key=lambda slot: spans[slot][0]))


def _neighbours_as_one(schedule: Schedule, devices: Sequence[Hashable],
                       duration_of: Callable[[Slot], float], edges: Edges) -> Schedule:
    num_cells, last = schedule.num_cells, schedule.num_cells - 1
    starts = [k for k in range(num_cells) if k == 0 or devices[k] != devices[k - 1]]
    runs = [range(start, stop) for start, stop in itertools.pairwise([*starts, num_cells])]
    run_of = {k: r for r, run in enumerate(runs) for k in run}
    backward_runs = {run_of[k] for k in schedule.backward_cells}
    coarse = make_schedule(schedule.name, len(runs), schedule.num_micro_batches, backward_runs)

    def slots_of(coarse_slot: Slot) -> list[Slot]:
        """Those of the cells of a run, for one of its own."""
        run, m = runs[coarse_slot.cell], coarse_slot.micro_batch
        slots = []
        if coarse_slot.kind == 'F' or coarse.is_fused(coarse_slot):
            is_last_fused = last in schedule.backward_cells
            slots += [Slot('F', k, m) for k in run if not (k == last and is_last_fused)]
        if coarse_slot.kind in 'BW':
            slots += [Slot(coarse_slot.kind, k, m) for k in reversed(run)
                      if k in schedule.backward_cells]
        return slots

    coarse_edges = {(run_of[a], run_of[b]) for a, b in edges if run_of[a] != run_of[b]}
    spans = play(coarse, lambda slot: sum(map(duration_of, slots_of(slot))), coarse_edges)
    coarse_order = sorted(spans, key=lambda slot: spans[slot][0])
    return _listed(schedule, devices,
                   [slot for coarse_slot in coarse_order for slot in slots_of(coarse_slot)])


# K = 4 on 2 devices, M = 4; F2.0 is the forward of cell 2 for micro-batch 0, and all slots take one
# unit of time:
#
#   F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F2.2 B0.0 F2.3 B0.1 B2.2 B2.3 B0.2 B0.3
#   ..   F1.0 F1.1 B3.0 B3.1 F1.2 B1.0 F1.3 B1.1 B3.2 ..   B3.3 ..   B1.2 B1.3 ..
def _interleaved(schedule: Schedule, devices: Sequence[Hashable]) -> list[Schedule]:
    """One order, or none.

    There is none if cells are not dealt out in turn, M is no multiple of the number of devices, a
    cell has no backward, or a backward is split.
    """
    homes = list(dict.fromkeys(devices))
    num_homes, num_cells = len(homes), schedule.num_cells
    num_rounds, rest = divmod(num_cells, num_homes)
    if rest or schedule.num_micro_batches % num_homes or list(devices) != homes * num_rounds:
        return []
    kinds = {slot.kind for slots in schedule.devices for slot in slots}
    if len(schedule.backward_cells) != num_cells or kinds - {'F', 'B'}:
        return []

    # (round, micro-batch): a device runs as many micro-batches of a round as there are devices.
    turns = [(r, first + i) for first in range(0, schedule.num_micro_batches, num_homes)
             for r in range(num_rounds) for i in range(num_homes)]
    lists = []
    for place in range(num_homes):
        forwards = [Slot('F', r * num_homes + place, m) for r, m in turns]
        backwards = [Slot('B', (num_rounds - 1 - r) * num_homes + place, m) for r, m in turns]
        ahead = min(2 * (num_homes - 1 - place) + (num_rounds - 1) * num_homes, len(forwards))
        slots = forwards[:ahead]
        for i, backward in enumerate(backwards):
            slots += [*forwards[ahead + i:ahead + i + 1], backward]

        # The last cell's B is its F too.
        lists.append(tuple(slot for slot in slots
                           if not (slot.kind == 'F' and slot.cell == num_cells - 1)))
    return [replace(schedule, devices=tuple(lists))]


def _listed(schedule: Schedule, devices: Sequence[Hashable], order: Iterable[Slot]) -> Schedule:
    """The schedule with a list for every device, in an order of all slots."""
    lists: dict[Hashable, list[Slot]] = {home: [] for home in devices}
    for slot in order:
        lists[devices[slot.cell]].append(slot)
    return replace(schedule, devices=tuple(map(tuple, lists.values())))
