"""Schedule text: a schedule as a grid, as `drawing.grid` and the tool show_schedule print it.

    F0 F1 .. B0 W0 B1 W1      a row is a device; F0 is the forward of micro-batch 0
    .. B0 -- W0 B1 -- W1      of the cell of that number: row 1 has cell 1

    F0.0 F0.1 B3.0 --         where devices have several cells, the cell stands before the
    F1.0 F2.0 ..   B2.0       micro-batch: F2.0 is the forward of cell 2 for micro-batch 0

Only the order in a row counts: '..' and '--' are left out, and so are lines that begin with '#' or
with 'step', as that which the tool prints below its grid. A ';' begins a row as a new line does.
"""
from __future__ import annotations

import re

from lingpipe.pipeline.planning.layout import Layout
from lingpipe.pipeline.planning.schedule import KINDS, Schedule, Slot

_SLOT = re.compile(r'([A-Za-z]+)(?:(\d{1,9})\.)?(\d{1,9})')


def parse_schedule(text: str) -> Schedule:
    """Reads a grid.

    K and M follow from the slots. Cells that have no B are taken to have no backward. `validate`
    says whether the schedule is complete and can run.

    Raises:
      ValueError: there is no slot, or something is not a slot.
    """
    rows = [row.strip() for row in re.split(r'[\n;]', text)]
    devices = [tuple(_slots(row, number)) for number, row in enumerate(
        row for row in rows if row and not row.startswith(('#', 'step')))]
    slots = [slot for row in devices for slot in row]
    if not slots:
        raise ValueError('the schedule has no slots; write a row of slots such as F0 B0 for each '
                         'device.')
    for number, row in enumerate(devices):
        if not row:
            raise ValueError(f'row {number} of the schedule has no slots; give its device a cell, '
                             'or leave the row out.')
    backward_cells = frozenset(slot.cell for slot in slots if slot.kind == 'B')
    return Schedule('text', 1 + max(slot.cell for slot in slots),
                    1 + max(slot.micro_batch for slot in slots), tuple(devices), backward_cells)


def layout_in(schedule: Schedule) -> Layout:
    """The device of each cell, as the lists of a valid schedule have it."""
    device_of_cell = {slot.cell: device for slot, device in schedule.device_of.items()}
    return tuple(device_of_cell[k] for k in range(schedule.num_cells))


def _slots(row: str, number: int) -> list[Slot]:
    """Parses a row of a schedule; `number` is its own, for slots without a cell and for errors."""
    slots = []
    for word in row.split():
        if word in ('..', '--'):
            continue
        match = _SLOT.fullmatch(word)
        if match is None or match[1] not in KINDS:
            raise ValueError(
                f'row {number} of the schedule has {word!r}; a slot is {", ".join(KINDS[:-1])} or '
                f'{KINDS[-1]} with a micro-batch, as F0, or with a cell and a micro-batch, as '
                'F2.0: correct it.')
        slots.append(Slot(match[1], number if match[2] is None else int(match[2]), int(match[3])))
    return slots
