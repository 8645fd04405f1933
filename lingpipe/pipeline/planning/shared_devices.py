"""Shared devices: the order in which a device that has several cells runs their slots.

K cells, M micro-batches, k a cell, m a micro-batch.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import pairwise

from lingpipe.pipeline.planning.dependencies import Edges, chain, dependency_graph, play
from lingpipe.pipeline.planning.schedules import Schedule, Slot, make_schedule
from lingpipe.pipeline.planning.validation import validate


def together(
    schedule: Schedule,
    devices: Sequence[Hashable],
    duration_of: Callable[[Slot], float],
    edges: Edges | None = None,
    excess_of: Callable[[Schedule], float] = lambda schedule: 0.0,
) -> Schedule:
    """The schedule with all cells of a device in one list, since a device runs one slot at a time.

    No one order is best for all placements and costs, so several are tried on paper, and the fastest is taken, the first of equals:

    * As soon as possible: each device runs what can start first; of those backwards, which end what is held, and then lower micro-batches.
    * As if apart: the order in which slots would start if each cell had a device of its own, which is that of the schedule's kind.
    * Neighbours as one: cells that follow each other on a device count as one cell in a schedule of that kind.
    * Interleaved: cells dealt out to the devices in turn, in the order of arXiv 2104.04473, section 2.2, for any kind of schedule.

    In each of them the forwards and the backwards of a cell ascend. Only the first two keep the whole order within a cell; in the others it
    may hold fewer micro-batches, or more, than the schedule's kind would.

    Args:
      schedule: with a list for every cell.
      devices: [K] of each cell, anything that equals that of another cell on the same device.
      duration_of: how long a slot takes.
      edges: pairs (maker, reader); the chain by default.
      excess_of: how much an order breaks a limit (of memory); those that break it least are preferred, however slow.
    """
    homes = list(dict.fromkeys(devices))
    if len(homes) == len(devices):
        return schedule
    edges = chain(schedule.num_cells) if edges is None else edges

    def worth(order: Schedule) -> tuple[float, float]:
        return excess_of(order), max(end for _, end in play(order, duration_of, edges).values())

    orders = [
        _as_soon_as_possible(schedule, devices, duration_of, edges),
        _as_if_apart(schedule, devices, duration_of, edges),
        _neighbours_as_one(schedule, devices, duration_of, edges),
        *_interleaved(schedule, devices),
    ]
    return min((order for order in orders if _can_run(order, edges)), key=worth)


def _as_soon_as_possible(
    schedule: Schedule, devices: Sequence[Hashable], duration_of: Callable[[Slot], float], edges: Edges
) -> Schedule:
    graph = dependency_graph(schedule, edges)
    waiting = [list(reversed(slots)) for slots in schedule.devices]
    free_at = dict.fromkeys(devices, 0.0)
    ends: dict[Slot, float] = {}
    order: list[Slot] = []
    while any(waiting):
        heads = [slots[-1] for slots in waiting if slots and all(need in ends for need in graph[slots[-1]])]
        starts = {slot: max([free_at[devices[slot.cell]], *(ends[need] for need in graph[slot])]) for slot in heads}
        slot = min(heads, key=lambda t: (starts[t], t.kind, t.micro_batch, -t.cell))   # noqa: B023
        ends[slot] = free_at[devices[slot.cell]] = starts[slot] + duration_of(slot)
        order.append(waiting[slot.cell].pop())
    return _listed(schedule, devices, order)


def _as_if_apart(schedule: Schedule, devices: Sequence[Hashable], duration_of: Callable[[Slot], float], edges: Edges) -> Schedule:
    spans = play(schedule, duration_of, edges)  # slots come after what they need, so those that start together stay in a possible order
    return _listed(schedule, devices, sorted(spans, key=lambda slot: spans[slot][0]))


def _neighbours_as_one(
    schedule: Schedule, devices: Sequence[Hashable], duration_of: Callable[[Slot], float], edges: Edges
) -> Schedule:
    num_cells = schedule.num_cells
    starts = [k for k in range(num_cells) if k == 0 or devices[k] != devices[k - 1]]
    runs = [range(a, b) for a, b in pairwise([*starts, num_cells])]
    run_of = {k: r for r, run in enumerate(runs) for k in run}
    backward_runs = {run_of[k] for k in schedule.backward_cells}
    coarse = make_schedule(schedule.name, len(runs), schedule.num_micro_batches, backward_runs)

    def slots_of(slot: Slot) -> list[Slot]:
        """Those of the cells of a run, for one of its own."""
        run, last = runs[slot.cell], num_cells - 1
        forwards = [Slot('F', k, slot.micro_batch) for k in run if not (k == last and last in schedule.backward_cells)]
        backwards = [Slot('B', k, slot.micro_batch) for k in reversed(run) if k in schedule.backward_cells]
        return [*(forwards if slot.kind == 'F' or coarse.is_fused(slot) else []), *(backwards if slot.kind == 'B' else [])]

    coarse_edges = {(run_of[a], run_of[b]) for a, b in edges if run_of[a] != run_of[b]}
    spans = play(coarse, lambda slot: sum(map(duration_of, slots_of(slot))), coarse_edges)
    ordered = sorted(spans, key=lambda slot: spans[slot][0])
    return _listed(schedule, devices, [each for slot in ordered for each in slots_of(slot)])


def _interleaved(schedule: Schedule, devices: Sequence[Hashable]) -> list[Schedule]:
    """One order, or none: if cells are not dealt out in turn, M is no multiple of the number of devices, or a cell has no backward."""
    homes = list(dict.fromkeys(devices))
    num_homes, num_cells, num_micro_batches = len(homes), schedule.num_cells, schedule.num_micro_batches
    num_rounds, rest = divmod(num_cells, num_homes)
    if rest or num_micro_batches % num_homes or list(devices) != homes * num_rounds or len(schedule.backward_cells) != num_cells:
        return []
    groups = range(0, num_micro_batches, num_homes)
    forward = [(r, m) for first in groups for r in range(num_rounds) for m in range(first, first + num_homes)]
    lists = []
    for place in range(num_homes):
        forwards = [Slot('F', r * num_homes + place, m) for r, m in forward]
        backwards = [Slot('B', (num_rounds - 1 - r) * num_homes + place, m) for r, m in forward]
        ahead = min(2 * (num_homes - 1 - place) + (num_rounds - 1) * num_homes, len(forwards))
        slots = forwards[:ahead]
        for i, backward in enumerate(backwards):
            slots += [*forwards[ahead + i:ahead + i + 1], backward]
        lists.append(tuple(slot for slot in slots if slot != Slot('F', num_cells - 1, slot.micro_batch)))  # its B is its F too
    return [replace(schedule, devices=tuple(lists))]


def _listed(schedule: Schedule, devices: Sequence[Hashable], order: Sequence[Slot]) -> Schedule:
    """The schedule with a list for every device, in an order of all slots."""
    lists: dict[Hashable, list[Slot]] = {home: [] for home in devices}
    for slot in order:
        lists[devices[slot.cell]].append(slot)
    return replace(schedule, devices=tuple(map(tuple, lists.values())))


def _can_run(schedule: Schedule, edges: Edges) -> bool:
    try:
        validate(schedule, edges)
    except ValueError:
        return False
    return True
