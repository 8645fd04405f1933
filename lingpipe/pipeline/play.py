"""What follows from a schedule: who waits for whom, when each task runs, whether it can run at all, and how it looks.

K cells, M micro-batches, k a cell, m a micro-batch.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from lingpipe.pipeline.schedule import Schedule, Task, check_backward_cells, check_sizes, make_schedule

Edges = Collection[tuple[int, int]]
"""Pairs (maker cell, reader cell), maker < reader: the reader's forward reads what the maker's made."""

Span = tuple[float, float]
"""Start and end of a task, in seconds."""


def chain(num_cells: int) -> frozenset[tuple[int, int]]:
    """The edges of a plain sequence: each cell reads the one before it."""
    return frozenset((k, k + 1) for k in range(num_cells - 1))


def dependency_graph(schedule: Schedule, edges: Edges | None = None) -> dict[Task, tuple[Task, ...]]:
    """Returns what each task needs before it can start, besides its turn on its device.

    F(k, m), and B(k, m) where it is fused with F, needs F(j, m) for every edge (j, k). B(k, m) needs its
    own F(k, m) unless fused, and B(j, m) for every edge (k, j) whose reader j has a backward.

    Args:
      schedule: any schedule.
      edges: all pairs (maker, reader), skip connections included; the chain by default.

    Raises:
      ValueError: an edge does not go from a cell to a later one.
    """
    makers: list[list[int]] = [[] for _ in range(schedule.num_cells)]
    readers: list[list[int]] = [[] for _ in range(schedule.num_cells)]
    for maker, reader in sorted(chain(schedule.num_cells) if edges is None else set(edges)):
        if not 0 <= maker < reader < schedule.num_cells:
            raise ValueError(
                f'edge ({maker}, {reader}) does not go from a cell to a later one of {schedule.num_cells}; '
                f'give (maker, reader) with maker < reader < {schedule.num_cells}.'
            )
        makers[reader].append(maker)
        readers[maker].append(reader)

    def needs(task: Task) -> Iterable[Task]:
        kind, k, m = task
        is_fused = schedule.is_fused(task)
        if kind == 'F' or is_fused:
            yield from (Task('F', j, m) for j in makers[k])
        if kind == 'B' and not is_fused:
            yield Task('F', k, m)
            yield from (Task('B', j, m) for j in readers[k] if j in schedule.backward_cells)

    return {task: tuple(needs(task)) for k in range(schedule.num_cells) for task in schedule.tasks_of(k)}


def dependencies(task: Task, schedule: Schedule, edges: Edges | None = None) -> tuple[Task, ...]:
    """Returns the tasks that must end before `task` starts; see `dependency_graph` for many tasks."""
    graph = dependency_graph(schedule, edges)
    if task not in graph:
        raise ValueError(_unexpected(task, schedule))
    return graph[task]


def play(
    schedule: Schedule,
    duration_of: Callable[[Task], float],
    edges: Edges | None = None,
    arrival_of: Callable[[Task, Task, float], float] = lambda maker, reader, end: end,
) -> dict[Task, Span]:
    """Runs the schedule on paper: each task starts when its device is free and what it needs has arrived.

    Args:
      schedule: which tasks each device runs, in order.
      duration_of: how long a task takes.
      edges: pairs (maker, reader); the chain by default.
      arrival_of: when the result of the first task, which ends at `end`, is there for the second. Asked once
        for each pair, in the order of the reading device. Devices compute while they send.

    Returns:
      The start and the end of each task.

    Raises:
      ValueError: the devices wait for each other for ever; names the first task that is stuck.
    """
    graph = dependency_graph(schedule, edges)
    spans: dict[Task, Span] = {}
    position = [0] * len(schedule.devices)
    free_at = [0.0] * len(schedule.devices)
    waiting: dict[Task, list[int]] = {}  # task -> devices whose next task needs it
    runnable = list(range(len(schedule.devices)))
    while runnable:
        device = runnable.pop()
        for task in schedule.devices[device][position[device] :]:
            missing = next((need for need in graph[task] if need not in spans), None)
            if missing is not None:
                waiting.setdefault(missing, []).append(device)
                break
            start = max([free_at[device], *(arrival_of(need, task, spans[need][1]) for need in graph[task])])
            free_at[device] = start + duration_of(task)
            spans[task] = (start, free_at[device])
            position[device] += 1
            runnable += waiting.pop(task, ())

    for device, tasks in enumerate(schedule.devices):
        if position[device] < len(tasks):
            task = tasks[position[device]]
            missing = next(need for need in graph[task] if need not in spans)
            raise ValueError(
                f'schedule {schedule.name!r} deadlocks: device {device} waits at {task} for {missing}, '
                f'which can never start; run {missing} on device {schedule.device_of.get(missing)} before what waits for it.'
            )
    return spans


def together(
    schedule: Schedule,
    devices: Sequence[Hashable],
    duration_of: Callable[[Task], float],
    edges: Edges | None = None,
    excess_of: Callable[[Schedule], float] = lambda schedule: 0.0,
) -> Schedule:
    """The schedule with all cells of a device in one list, since a device runs one task at a time.

    No one order is best for all placements and costs, so several are tried on paper, and the fastest is taken, the first of equals:

    * As soon as possible: each device runs what can start first; of those backwards, which end what is held, and then lower micro-batches.
    * As if apart: the order in which tasks would start if each cell had a device of its own, which is that of the schedule's kind.
    * Neighbours as one: cells that follow each other on a device count as one cell in a schedule of that kind.
    * Interleaved: cells dealt out to the devices in turn, in the order of arXiv 2104.04473, section 2.2, for any kind of schedule.

    In each of them the forwards and the backwards of a cell ascend. Only the first two keep the whole order within a cell; in the others it
    may hold fewer micro-batches, or more, than the schedule's kind would.

    Args:
      schedule: with a list for every cell.
      devices: [K] of each cell, anything that equals that of another cell on the same device.
      duration_of: how long a task takes.
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
    schedule: Schedule, devices: Sequence[Hashable], duration_of: Callable[[Task], float], edges: Edges
) -> Schedule:
    graph = dependency_graph(schedule, edges)
    waiting = [list(reversed(tasks)) for tasks in schedule.devices]
    free_at = dict.fromkeys(devices, 0.0)
    ends: dict[Task, float] = {}
    order: list[Task] = []
    while any(waiting):
        heads = [tasks[-1] for tasks in waiting if tasks and all(need in ends for need in graph[tasks[-1]])]
        starts = {task: max([free_at[devices[task.cell]], *(ends[need] for need in graph[task])]) for task in heads}
        task = min(heads, key=lambda t: (starts[t], t.kind, t.micro_batch, -t.cell))   # noqa: B023
        ends[task] = free_at[devices[task.cell]] = starts[task] + duration_of(task)
        order.append(waiting[task.cell].pop())
    return _listed(schedule, devices, order)


def _as_if_apart(schedule: Schedule, devices: Sequence[Hashable], duration_of: Callable[[Task], float], edges: Edges) -> Schedule:
    spans = play(schedule, duration_of, edges)  # tasks come after what they need, so those that start together stay in a possible order
    return _listed(schedule, devices, sorted(spans, key=lambda task: spans[task][0]))


def _neighbours_as_one(
    schedule: Schedule, devices: Sequence[Hashable], duration_of: Callable[[Task], float], edges: Edges
) -> Schedule:
    num_cells = schedule.num_cells
    starts = [k for k in range(num_cells) if k == 0 or devices[k] != devices[k - 1]]
    runs = [range(a, b) for a, b in pairwise([*starts, num_cells])]
    run_of = {k: r for r, run in enumerate(runs) for k in run}
    backward_runs = {run_of[k] for k in schedule.backward_cells}
    coarse = make_schedule(schedule.name, len(runs), schedule.num_micro_batches, backward_runs)

    def tasks_of(task: Task) -> list[Task]:
        """Those of the cells of a run, for one of its own."""
        run, last = runs[task.cell], num_cells - 1
        forwards = [Task('F', k, task.micro_batch) for k in run if not (k == last and last in schedule.backward_cells)]
        backwards = [Task('B', k, task.micro_batch) for k in reversed(run) if k in schedule.backward_cells]
        return [*(forwards if task.kind == 'F' or coarse.is_fused(task) else []), *(backwards if task.kind == 'B' else [])]

    coarse_edges = {(run_of[a], run_of[b]) for a, b in edges if run_of[a] != run_of[b]}
    spans = play(coarse, lambda task: sum(map(duration_of, tasks_of(task))), coarse_edges)
    ordered = sorted(spans, key=lambda task: spans[task][0])
    return _listed(schedule, devices, [each for task in ordered for each in tasks_of(task)])


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
        forwards = [Task('F', r * num_homes + place, m) for r, m in forward]
        backwards = [Task('B', (num_rounds - 1 - r) * num_homes + place, m) for r, m in forward]
        ahead = min(2 * (num_homes - 1 - place) + (num_rounds - 1) * num_homes, len(forwards))
        tasks = forwards[:ahead]
        for i, backward in enumerate(backwards):
            tasks += [*forwards[ahead + i:ahead + i + 1], backward]
        lists.append(tuple(task for task in tasks if task != Task('F', num_cells - 1, task.micro_batch)))  # its B is its F too
    return [replace(schedule, devices=tuple(lists))]


def _listed(schedule: Schedule, devices: Sequence[Hashable], order: Sequence[Task]) -> Schedule:
    """The schedule with a list for every device, in an order of all tasks."""
    lists: dict[Hashable, list[Task]] = {home: [] for home in devices}
    for task in order:
        lists[devices[task.cell]].append(task)
    return replace(schedule, devices=tuple(map(tuple, lists.values())))


def _can_run(schedule: Schedule, edges: Edges) -> bool:
    try:
        validate(schedule, edges)
    except ValueError:
        return False
    return True


def validate(schedule: Schedule, edges: Edges | None = None) -> None:
    """Proves that the schedule is complete, on one device a cell, in order and free of deadlock.

    Args:
      schedule: any schedule, of this file or made by hand.
      edges: pairs (maker, reader), skip connections included; the chain by default.

    Raises:
      ValueError: names the first task that is missing, doubled, unexpected, on another device than
        its cell, out of order or stuck.
    """
    check_sizes(schedule.num_cells, schedule.num_micro_batches)
    check_backward_cells(schedule.backward_cells, schedule.num_cells)
    if schedule.backward_cells and schedule.num_cells - 1 not in schedule.backward_cells:
        raise ValueError(f'backward_cells lacks the last cell, {schedule.num_cells - 1}, whose B computes the loss; add it.')
    name = f'schedule {schedule.name!r}'
    expected = [task for k in range(schedule.num_cells) for task in schedule.tasks_of(k)]
    known, seen = set(expected), set()
    device_of_cell: dict[int, int] = {}
    next_backward = dict.fromkeys(range(schedule.num_cells), 0)
    for device, tasks in enumerate(schedule.devices):
        for task in tasks:
            if task not in known:
                raise ValueError(_unexpected(task, schedule))
            if task in seen:
                raise ValueError(f'{name} runs {task} twice, the second time on device {device}; run every task once.')
            if device_of_cell.setdefault(task.cell, device) != device:
                home = device_of_cell[task.cell]
                raise ValueError(f'{name} runs {task} on device {device}, but its cell is on device {home}; keep a cell on one device.')
            seen.add(task)
    for task in expected:
        if task not in seen:
            raise ValueError(f'{name} lacks {task}; run every task once.')
    for tasks in schedule.devices:
        for task in tasks:
            if task.kind == 'B':
                if task.micro_batch != next_backward[task.cell]:
                    raise ValueError(
                        f'{name} runs {task} before micro-batch {next_backward[task.cell]}; backwards run in '
                        f'ascending order, so that gradients are always summed in the same one.'
                    )
                next_backward[task.cell] += 1
    play(schedule, lambda task: 1, edges)


def grid(schedule: Schedule, slots: Callable[[Task], int] | None = None, edges: Edges | None = None) -> str:
    """Draws the schedule: a row a device, a column a slot of time, `..` where the device is idle.

    Args:
      schedule: a valid schedule.
      slots: how many slots a task takes, at least 1; by default 1, and 2 for the last cell's B, which is
        a forward and a backward. The slots after a task's first show `--`.
      edges: pairs (maker, reader); the chain by default.

    Returns:
      Lines such as `F0 F1 .. B0`: kind and micro-batch, with the cell between (`F2.0`: cell 2,
      micro-batch 0) if a device has several cells.
    """
    spans = play(schedule, slots or (lambda task: 2 if schedule.is_fused(task) else 1), edges)
    num_slots = int(max(end for _, end in spans.values()))
    shows_cell = any(len({task.cell for task in tasks}) > 1 for tasks in schedule.devices)
    rows = []
    for tasks in schedule.devices:
        row = ['..'] * num_slots
        for task in tasks:
            start, end = (int(time) for time in spans[task])
            cell = f'{task.cell}.' if shows_cell else ''
            row[start:end] = [f'{task.kind}{cell}{task.micro_batch}', *['--'] * (end - start - 1)]
        rows.append(row)
    width = max(len(text) for row in rows for text in row)
    return '\n'.join(' '.join(text.ljust(width) for text in row).rstrip() for row in rows)


def _unexpected(task: Task, schedule: Schedule) -> str:
    kinds = {'F': 'is the last, whose B is its F too', 'B': 'is not in backward_cells'}
    why = f'there are {schedule.num_cells} cells and {schedule.num_micro_batches} micro-batches, of kinds F and B'
    if 0 <= task.cell < schedule.num_cells and 0 <= task.micro_batch < schedule.num_micro_batches and task.kind in kinds:
        why = f'cell {task.cell} ' + kinds[task.kind]
    return f'schedule {schedule.name!r} has no place for {task}: {why}; remove it.'
