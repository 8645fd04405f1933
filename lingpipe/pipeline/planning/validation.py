"""Validation: proves that a schedule can run, whoever made it."""

from lingpipe.pipeline.planning.dependencies import Edges, play, unexpected
from lingpipe.pipeline.planning.schedules import Schedule, check_backward_cells, check_sizes


def validate(schedule: Schedule, edges: Edges | None = None) -> None:
    """Proves that the schedule is complete, on one device a cell, in order and free of deadlock.

    Args:
      schedule: any schedule, of this file or made by hand.
      edges: pairs (maker, reader), skip connections included; the chain by default.

    Raises:
      ValueError: names the first slot that is missing, doubled, unexpected, on another device than
        its cell, out of order or stuck.
    """
    check_sizes(schedule.num_cells, schedule.num_micro_batches)
    check_backward_cells(schedule.backward_cells, schedule.num_cells)
    if schedule.backward_cells and schedule.num_cells - 1 not in schedule.backward_cells:
        raise ValueError(f'backward_cells lacks the last cell, {schedule.num_cells - 1}, whose B computes the loss; add it.')
    name = f'schedule {schedule.name!r}'
    expected = [slot for k in range(schedule.num_cells) for slot in schedule.slots_of(k)]
    known, seen = set(expected), set()
    device_of_cell: dict[int, int] = {}
    next_backward = dict.fromkeys(range(schedule.num_cells), 0)
    for device, slots in enumerate(schedule.devices):
        for slot in slots:
            if slot not in known:
                raise ValueError(unexpected(slot, schedule))
            if slot in seen:
                raise ValueError(f'{name} runs {slot} twice, the second time on device {device}; run every task once.')
            if device_of_cell.setdefault(slot.cell, device) != device:
                home = device_of_cell[slot.cell]
                raise ValueError(f'{name} runs {slot} on device {device}, but its cell is on device {home}; keep a cell on one device.')
            seen.add(slot)
    for slot in expected:
        if slot not in seen:
            raise ValueError(f'{name} lacks {slot}; run every task once.')
    for slots in schedule.devices:
        for slot in slots:
            if slot.kind == 'B':
                if slot.micro_batch != next_backward[slot.cell]:
                    raise ValueError(
                        f'{name} runs {slot} before micro-batch {next_backward[slot.cell]}; backwards run in '
                        f'ascending order, so that gradients are always summed in the same one.'
                    )
                next_backward[slot.cell] += 1
    play(schedule, lambda slot: 1, edges)
