"""Playing: when each slot of a schedule runs, given how long slots take.

K cells, M micro-batches, k a cell, m a micro-batch.
"""

import dataclasses
import weakref
from collections.abc import Callable, Sequence
from typing import TypeAlias

from lingpipe.pipeline.planning.dependencies import Edges, dependency_graph, needs_of_slots
from lingpipe.pipeline.planning.schedule import KINDS, Schedule, Slot

Span = tuple[float, float]
"""Start and end of a slot, in seconds."""


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
    turns = _turns(schedule, edges)
    spans: dict[Slot, Span] = {}
    end_of = [0.0] * turns.num_slots
    free_at = [0.0] * len(schedule.devices)
    for slot, device, task, m in turns.listed:
        start = free_at[device]
        for need, first in turns.needs[task]:
            arrival = end_of[first + m]
            if arrival_of is not None:
                arrival = arrival_of(Slot(*need, m), slot, arrival)
            if arrival > start:
                start = arrival
        end = start + duration_of(slot)
        free_at[device] = end_of[turns.firsts[task] + m] = end
        spans[slot] = (start, end)
    return spans


def refuse_deadlock(schedule: Schedule, edges: Edges | None) -> None:
    """Raises ValueError if the devices would wait for each other for ever; see `play`."""
    _turns(schedule, edges)


def play_with_delays(schedule: Schedule, duration_of: Callable[[Slot], float], edges: Edges,
                     delay: Callable[[int, int], float]) -> dict[Slot, Span]:
    """As `play`, where a result is on another device so many seconds after it is made.

    Args:
      schedule, edges: as of `play`.
      duration_of: how long a slot takes. It is asked for one slot of each compiled task, since all
        slots that call a task take equally long; see Schedule.task_kind.
      delay: seconds from one cell to another, asked only for those on different devices.
    """
    starts, ends = _starts_and_ends(schedule, duration_of, edges, delay)
    turns = _turns(schedule, edges)
    spans: dict[Slot, Span] = {}
    for slot, _, task, m in turns.listed:
        number = turns.firsts[task] + m
        spans[slot] = (starts[number], ends[number])
    return spans


def step_with_delays(schedule: Schedule, duration_of: Callable[[Slot], float], edges: Edges,
                     delay: Callable[[int, int], float]) -> float:
    """When the last slot ends; arguments as of `play_with_delays`."""
    return max(_starts_and_ends(schedule, duration_of, edges, delay)[1])


def backwards_that_wait(schedule: Schedule, duration_of: Callable[[Slot], float],
                        early_of: Callable[[Slot], tuple[float, float] | None], edges: Edges,
                        delay: Callable[[int, int], float]) -> set[Slot]:
    """Returns the B slots for which a device waits, and before which an R is thus worth its time.

    With these R the step is shorter, and devices may wait for other B. So the step is played again
    with the R found so far, until no further one is found.

    Args:
      schedule, duration_of, edges, delay: as of `play_with_delays`.
      early_of: the seconds of the R of a slot, and of the slot after it; None if it has no R.
        Asked for one slot of each compiled task.
    """
    turns = _turns(schedule, edges)
    seconds = [duration_of(slot) for slot in turns.examples]
    early = [early_of(slot) for slot in turns.examples]
    needs, firsts = turns.delayed_needs(delay), turns.firsts
    has_r = bytearray(turns.num_slots)
    waiting: set[Slot] = set()
    is_complete = not any(early)
    while not is_complete:
        is_complete = True
        end_of = [0.0] * turns.num_slots
        free_at = [0.0] * len(schedule.devices)
        for slot, device, task, m in turns.listed:
            start = idle_from = free_at[device]
            number, duration, of_early = firsts[task] + m, seconds[task], early[task]
            if of_early is not None and has_r[number]:
                repeat_s, duration = of_early
                start += repeat_s
            for first, delay_s in needs[task]:
                arrival = end_of[first + m] + delay_s
                if arrival > start:
                    start = arrival
            free_at[device] = end_of[number] = start + duration
            if of_early is not None and start > idle_from and not has_r[number]:
                has_r[number], is_complete = True, False
                waiting.add(slot)
    return waiting


def _starts_and_ends(schedule: Schedule, duration_of: Callable[[Slot], float], edges: Edges,
                     delay: Callable[[int, int], float]) -> tuple[list[float], list[float]]:
    """When the slots start and end, by their numbers; see _Turns."""
    turns = _turns(schedule, edges)
    seconds = [duration_of(slot) for slot in turns.examples]
    needs, firsts = turns.delayed_needs(delay), turns.firsts

    starts = [0.0] * turns.num_slots
    ends = [0.0] * turns.num_slots
    free_at = [0.0] * len(schedule.devices)
    for _, device, task, m in turns.listed:
        start = free_at[device]
        for first, delay_s in needs[task]:
            arrival = ends[first + m] + delay_s
            if arrival > start:
                start = arrival
        number = firsts[task] + m
        starts[number] = start
        free_at[device] = ends[number] = start + seconds[task]
    return starts, ends


_Turn: TypeAlias = tuple[Slot, int, int, int]
"""A slot, its device, its task and its micro-batch."""


@dataclasses.dataclass(frozen=True)
class _Turns:
    """The slots of a schedule in an order in which they can run, whatever they take.

    Slots are numbered: the number of F(k, 0), plus m, is that of F(k, m). All that a slot needs is
    of its own micro-batch, so it is said once for all slots that call the same compiled task.

    Attributes:
      listed: each comes after what it needs.
      examples: a slot of each task.
      needs: for each task, what its slots need: kind and cell, and the number for micro-batch 0.
      firsts: for each task, the number of its slot of micro-batch 0.
      num_slots: more than any number of a slot.
      home_of: cell -> its device.
    """
    listed: list[_Turn]
    examples: list[Slot]
    needs: list[list[tuple[tuple[str, int], int]]]
    firsts: list[int]
    num_slots: int
    home_of: dict[int, int]

    def delayed_needs(self, delay: Callable[[int, int], float]) -> list[list[tuple[int, float]]]:
        """For each task, the numbers for micro-batch 0 of what it needs, and how late that is."""
        homes = self.home_of
        return [[(first, delay(j, k) if homes[j] != homes[k] else 0.0)
                 for (_, j), first in needs]
                for needs, (_, k, _) in zip(self.needs, self.examples, strict=True)]


_TURNS: weakref.WeakKeyDictionary[
    Schedule, dict[frozenset[tuple[int, int]] | None, _Turns]] = weakref.WeakKeyDictionary()


def _turns(schedule: Schedule, edges: Edges | None) -> _Turns:
    """The turns of a schedule; found once for it, since it is often played with several times.

    Raises:
      ValueError: there are none; names the first slot that is stuck.
    """
    known = _TURNS.setdefault(schedule, {})
    key = None if edges is None else frozenset(edges)
    if key not in known:
        known[key] = _turns_in(schedule, edges)
    return known[key]


def _turns_in(schedule: Schedule, edges: Edges | None) -> _Turns:
    needs_of, num_micro_batches = needs_of_slots(schedule, edges), schedule.num_micro_batches
    first_of = {(kind, k): (i * schedule.num_cells + k) * num_micro_batches
                for i, kind in enumerate(KINDS) for k in range(schedule.num_cells)}
    task_of: dict[tuple[str, int], int] = {}
    examples: list[Slot] = []
    needs: list[list[tuple[tuple[str, int], int]]] = []
    firsts: list[int] = []

    def new_task(slot: Slot, task: tuple[str, int]) -> int:
        """The number of a task that has none yet, whose first slot this is."""
        kind, k, _ = slot
        needed = needs_of(kind, k, kind == 'B' and schedule.is_recomputed_early(slot))
        examples.append(slot)
        needs.append([(need, first_of[need]) for need in needed])
        firsts.append(first_of[kind, k])
        return task_of.setdefault(task, len(task_of))

    queues = []   # [devices] its slots as they are in `listed`
    home_of: dict[int, int] = {}
    for device, slots in enumerate(schedule.devices):
        tasks = schedule.tasks_of_lists[device]
        home_of.update((k, device) for _, k in tasks)
        queues.append([
            (slot, device, task_of[task] if task in task_of else new_task(slot, task), slot[2])
            for slot, task in zip(slots, tasks, strict=True)])

    num_slots = len(first_of) * num_micro_batches
    listed = _runnable_order(queues, needs, firsts, num_slots)
    if len(listed) < sum(map(len, schedule.devices)):
        raise ValueError(_why_stuck(schedule, edges, {turn[0] for turn in listed}))
    return _Turns(listed, examples, needs, firsts, num_slots, home_of)


def _runnable_order(queues: Sequence[Sequence[_Turn]],
                    needs: Sequence[Sequence[tuple[tuple[str, int], int]]],
                    firsts: Sequence[int], num_slots: int) -> list[_Turn]:
    """The turns of all devices in an order in which they can run, up to where all are stuck.

    Args:
      queues: [devices] the turns of a device, in the order of its schedule.
      needs, firsts, num_slots: as of _Turns.
    """
    listed: list[_Turn] = []
    is_done = bytearray(num_slots)
    num_done = [0] * len(queues)
    waiting: dict[int, list[int]] = {}  # number of a slot -> devices whose next slot needs it
    runnable = list(range(len(queues)))
    while runnable:
        device = runnable.pop()
        queue = queues[device]
        while num_done[device] < len(queue):
            turn = queue[num_done[device]]
            _, _, task, m = turn
            for _, first in needs[task]:
                if not is_done[first + m]:
                    waiting.setdefault(first + m, []).append(device)
                    break
            else:
                number = firsts[task] + m
                listed.append(turn)
                is_done[number] = True
                num_done[device] += 1
                if number in waiting:
                    runnable += waiting.pop(number)
                continue
            break
    return listed


def _why_stuck(schedule: Schedule, edges: Edges | None, done: set[Slot]) -> str:
    """The sentence about the first slot that could not run."""
    graph = dependency_graph(schedule, edges)
    stuck = ((slot, device) for device, slots in enumerate(schedule.devices) for slot in slots
             if slot not in done)
    slot, device = next(stuck)
    missing = next(need for need in graph[slot] if need not in done)
    return (f'schedule {schedule.name!r} deadlocks: device {device} waits at {slot} for '
            f'{missing}, which can never start; run {missing} on device '
            f'{schedule.device_of.get(missing)} before what waits for it.')
