"""Validation: proves that a schedule can run, whoever made it."""

from lingpipe.pipeline.planning.dependencies import Edges, play, unexpected
from lingpipe.pipeline.planning.schedules import Schedule, check_backward_cells, check_sizes


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
                raise ValueError(unexpected(task, schedule))
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
