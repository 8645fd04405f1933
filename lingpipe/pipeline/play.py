"""What follows from a schedule: who waits for whom, when each task runs, whether it can run at all, and how it looks.

K cells, M micro-batches, k a cell, m a micro-batch.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import replace

from lingpipe.pipeline.schedule import Schedule, Task, check_backward_cells, check_sizes

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


def together(schedule: Schedule, devices: Sequence[Hashable], duration_of: Callable[[Task], float], edges: Edges | None = None) -> Schedule:
    """The schedule with all cells of a device in one list, since a device runs one task at a time.

    The order within each cell stays. Between cells it is that in which tasks can start if they take as long as they are said to; of those
    that can start at once backwards come first, which end what is held, and then lower micro-batches.

    Args:
      schedule: with a list for every cell.
      devices: [K] of each cell, anything that equals that of another cell on the same device.
      duration_of: how long a task takes.
      edges: pairs (maker, reader); the chain by default.
    """
    homes = list(dict.fromkeys(devices))
    if len(homes) == len(devices):
        return schedule
    graph = dependency_graph(schedule, edges)
    waiting = [list(reversed(tasks)) for tasks in schedule.devices]
    free_at = dict.fromkeys(homes, 0.0)
    ends: dict[Task, float] = {}
    merged: dict[Hashable, list[Task]] = {home: [] for home in homes}
    while any(waiting):
        heads = [tasks[-1] for tasks in waiting if tasks and all(need in ends for need in graph[tasks[-1]])]
        starts = {task: max([free_at[devices[task.cell]], *(ends[need] for need in graph[task])]) for task in heads}
        task = min(heads, key=lambda t: (starts[t], t.kind, t.micro_batch, -t.cell))   # noqa: B023
        ends[task] = free_at[devices[task.cell]] = starts[task] + duration_of(task)
        merged[devices[task.cell]].append(waiting[task.cell].pop())
    return replace(schedule, devices=tuple(map(tuple, merged.values())))


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
