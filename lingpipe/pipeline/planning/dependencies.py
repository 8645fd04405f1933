"""Dependencies: which slot of a schedule waits for which, and when each of them therefore runs.

K cells, M micro-batches, k a cell, m a micro-batch.
"""

import itertools
import weakref
from collections.abc import Callable, Collection

from lingpipe.pipeline.planning.schedule import KINDS, Schedule, Slot

Edges = Collection[tuple[int, int]]
"""Pairs (maker cell, reader cell): the reader's forward reads what the maker's made.

The maker is the earlier cell.
"""

Span = tuple[float, float]
"""Start and end of a slot, in seconds."""


def chain(num_cells: int) -> frozenset[tuple[int, int]]:
    """The edges of a plain sequence: each cell reads the one before it."""
    return frozenset((k, k + 1) for k in range(num_cells - 1))


def dependency_graph(schedule: Schedule,
                     edges: Edges | None = None) -> dict[Slot, tuple[Slot, ...]]:
    """Returns what each slot needs before it can start, besides its turn on its device.

    F(k, m), and B(k, m) where it is fused with F, needs F(j, m) for every edge (j, k). B(k, m)
    needs its own F(k, m) unless fused, its R(k, m) if there is one, and B(j, m) for every edge
    (k, j) whose reader j has a backward. R(k, m) needs its F(k, m), and W(k, m) its B(k, m).

    Args:
      schedule: any schedule.
      edges: all pairs (maker, reader), skip connections included; the chain by default.

    Raises:
      ValueError: an edge does not go from a cell to a later one.
    """
    num_cells = schedule.num_cells
    makers: list[list[int]] = [[] for _ in range(num_cells)]
    backward_readers: list[list[int]] = [[] for _ in range(num_cells)]
    for maker, reader in sorted(chain(num_cells) if edges is None else set(edges)):
        if not 0 <= maker < reader < num_cells:
            raise ValueError(
                f'edge ({maker}, {reader}) does not go from a cell to a later one of {num_cells}; '
                f'give (maker, reader) with maker < reader < {num_cells}.')
        makers[reader].append(maker)
        if reader in schedule.backward_cells:
            backward_readers[maker].append(reader)

    slots = {kind: [[Slot(kind, k, m) for m in range(schedule.num_micro_batches)]
                    for k in range(num_cells)] for kind in KINDS}
    graph: dict[Slot, tuple[Slot, ...]] = {}
    for k, m in itertools.product(range(num_cells), range(schedule.num_micro_batches)):
        f, b, w, r = (slots[kind][k][m] for kind in KINDS)
        inputs = tuple(slots['F'][j][m] for j in makers[k])
        is_fused = k in schedule.backward_cells and schedule.is_fused(b)
        if not is_fused:
            graph[f] = inputs
        if k not in schedule.backward_cells:
            continue

        own = inputs if is_fused else (f,)
        if not is_fused and r in schedule.device_of:
            graph[r] = (f,)
            own = (f, r)
        graph[b] = own + tuple(slots['B'][j][m] for j in backward_readers[k])
        if w in schedule.device_of:
            graph[w] = (b,)
    return graph


def dependencies(slot: Slot, schedule: Schedule, edges: Edges | None = None) -> tuple[Slot, ...]:
    """Returns the slots that must end before `slot` starts.

    See `dependency_graph` for many slots.
    """
    graph = dependency_graph(schedule, edges)
    if slot not in graph:
        raise ValueError(unexpected(slot, schedule))
    return graph[slot]


def play(
    schedule: Schedule,
    duration_of: Callable[[Slot], float],
    edges: Edges | None = None,
    arrival_of: Callable[[Slot, Slot, float], float] | None = None,
) -> dict[Slot, Span]:
    """Runs the schedule on paper.

    Each slot starts when its device is free and what it needs has arrived. Devices compute while
    they send.

    Args:
      schedule: which slots each device runs, in order.
      duration_of: how long a slot takes.
      edges: pairs (maker, reader); the chain by default.
      arrival_of: when the result of the first slot, which ends at `end`, is there for the second.
        Asked once for each pair, in the order of the reading device. By default, at once.

    Returns:
      The start and the end of each slot; a slot comes after those that it needs.

    Raises:
      ValueError: the devices wait for each other for ever; names the first slot that is stuck.
    """
    spans: dict[Slot, Span] = {}
    ends: dict[Slot, float] = {}
    free_at = [0.0] * len(schedule.devices)
    for slot, device, needs in _turns(schedule, edges):
        start = free_at[device]
        for need in needs:
            arrival = ends[need] if arrival_of is None else arrival_of(need, slot, ends[need])
            if arrival > start:
                start = arrival
        free_at[device] = ends[slot] = end = start + duration_of(slot)
        spans[slot] = (start, end)
    return spans


def play_with_delays(schedule: Schedule, duration_of: Callable[[Slot], float], edges: Edges,
                     delay: Callable[[int, int], float]) -> dict[Slot, Span]:
    """As `play`, where a result is on another device so many seconds after it is made.

    Args:
      schedule, duration_of, edges: as of `play`.
      delay: seconds from one cell to another, asked only for those on different devices.
    """
    device_of = schedule.device_of
    seconds: dict[tuple[int, int], float] = {}   # (sending cell, receiving cell) -> delay

    def arrival_of(maker: Slot, reader: Slot, end: float) -> float:
        pair = maker[1], reader[1]
        if pair not in seconds:
            is_sent = device_of[maker] != device_of[reader]
            seconds[pair] = delay(*pair) if is_sent else 0.0
        return end + seconds[pair]

    return play(schedule, duration_of, edges, arrival_of)


# A slot, its device and what it needs; a slot comes after those that it needs.
_Turn = tuple[Slot, int, tuple[Slot, ...]]

_TURNS: weakref.WeakKeyDictionary[
    Schedule, dict[frozenset[tuple[int, int]] | None, list[_Turn]]] = weakref.WeakKeyDictionary()


def _turns(schedule: Schedule, edges: Edges | None) -> list[_Turn]:
    """The slots in an order in which they can run, whatever they take.

    It is found once for a schedule, which is often played with several times of slots.

    Raises:
      ValueError: there is none; names the first slot that is stuck.
    """
    known = _TURNS.setdefault(schedule, {})
    key = None if edges is None else frozenset(edges)
    if key not in known:
        known[key] = _turns_in(schedule, dependency_graph(schedule, edges))
    return known[key]


def _turns_in(schedule: Schedule, graph: dict[Slot, tuple[Slot, ...]]) -> list[_Turn]:
    turns: list[_Turn] = []
    done: set[Slot] = set()
    num_done = [0] * len(schedule.devices)
    waiting: dict[Slot, list[int]] = {}  # slot -> devices whose next slot needs it
    runnable = list(range(len(schedule.devices)))
    while runnable:
        device = runnable.pop()
        slots = schedule.devices[device]
        while num_done[device] < len(slots):
            slot = slots[num_done[device]]
            missing = next((need for need in graph[slot] if need not in done), None)
            if missing is not None:
                waiting.setdefault(missing, []).append(device)
                break
            turns.append((slot, device, graph[slot]))
            done.add(slot)
            num_done[device] += 1
            runnable += waiting.pop(slot, ())

    _refuse_deadlock(schedule, graph, done)
    return turns


def _refuse_deadlock(schedule: Schedule, graph: dict[Slot, tuple[Slot, ...]],
                     done: set[Slot]) -> None:
    """Raises ValueError for the first slot that could not run."""
    for device, slots in enumerate(schedule.devices):
        for slot in slots:
            if slot not in done:
                missing = next(need for need in graph[slot] if need not in done)
                raise ValueError(
                    f'schedule {schedule.name!r} deadlocks: device {device} waits at {slot} for '
                    f'{missing}, which can never start; run {missing} on device '
                    f'{schedule.device_of.get(missing)} before what waits for it.')


def unexpected(slot: Slot, schedule: Schedule) -> str:
    """Why a slot is none of the schedule's, and what to do about it."""
    why = (f'there are {schedule.num_cells} cells and {schedule.num_micro_batches} micro-batches, '
           'of kinds F, B, W and R')
    why_not_kind = {
        'F': 'is the last, whose B is its F too',
        'B': 'is not in backward_cells',
        'W': 'is not in backward_cells',
        'R': 'is the last, which never recomputes' if slot.cell == schedule.num_cells - 1
             else 'is not in backward_cells',
    }
    is_inside = (0 <= slot.cell < schedule.num_cells and
                 0 <= slot.micro_batch < schedule.num_micro_batches)
    if is_inside and slot.kind in why_not_kind:
        why = f'cell {slot.cell} {why_not_kind[slot.kind]}'
    return f'schedule {schedule.name!r} has no place for {slot}: {why}; remove it.'
