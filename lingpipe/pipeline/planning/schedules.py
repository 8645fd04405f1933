"""Schedules by name.

    forward                      turns.py            evaluation: no backward
    gpipe, 1f1b                  turns.py            one cell a device
    zb_h1, zb_h2                 zero_bubble.py      the same, with split backwards
    interleaved                  interleaved.py      several cells a device, dealt out in turn
    zb_v, v_half, v_min          building_blocks.py  two cells a device, in a V
    dual_pipe_v                  interleaved.py      the same

A builder makes the schedule of cells that all have a backward, on the devices that suit it. For
other cells `make_schedule` leaves out what does not exist; on other devices, list scheduling makes
one that splits as much and holds as many micro-batches.
"""
from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Collection
from dataclasses import replace

from lingpipe.pipeline.planning.building_blocks import most_held, v_half, v_min, zb_v
from lingpipe.pipeline.planning.cell_times import cell_times
from lingpipe.pipeline.planning.dependencies import chain
from lingpipe.pipeline.planning.interleaved import dual_pipe_v, interleaved
from lingpipe.pipeline.planning.layout import Layout, in_turn, layout_for, num_devices_for, zigzag
from lingpipe.pipeline.planning.list_scheduling import Policy, Workload, list_schedule
from lingpipe.pipeline.planning.schedule import Schedule, check_backward_cells, check_sizes
from lingpipe.pipeline.planning.turns import forward_only, gpipe, one_f_one_b
from lingpipe.pipeline.planning.zero_bubble import zb_h1, zb_h2

_ONE_CELL_A_DEVICE: dict[str, Callable[[int, int], Schedule]] = {
    'gpipe': gpipe, '1f1b': one_f_one_b, 'zb_h1': zb_h1, 'zb_h2': zb_h2, 'forward': forward_only}
_IN_A_V: dict[str, Callable[[int, int], Schedule]] = {
    'zb_v': zb_v, 'v_half': v_half, 'v_min': v_min, 'dual_pipe_v': dual_pipe_v}

# All those for training.
TRAINING = ('gpipe', '1f1b', 'interleaved', 'zb_h1', 'zb_h2', 'zb_v', 'v_half', 'v_min',
            'dual_pipe_v')
UNSPLIT = ('gpipe', '1f1b', 'interleaved')   # Every W of these runs with its B.
SEVERAL_CELLS_A_DEVICE = ('interleaved', *_IN_A_V)


def make_schedule(name: str, num_cells: int, num_micro_batches: int,
                  backward_cells: Collection[int] | None = None,
                  layout: Layout | None = None) -> Schedule:
    """Builds the schedule of that name.

    Args:
      name: see the head of this file.
      num_cells: K, at least 1.
      num_micro_batches: M, at least 1; fewer than K is allowed.
      backward_cells: the cells that have a backward, all by default; the last always has.
        'forward' has none and does not look at it.
      layout: which cells share a device, for schedules with several cells a device; by default two
        cells do. Other schedules give each cell a list of its own; see shared_devices.py.

    Raises:
      ValueError: an unknown name, a size below 1, or a backward cell that does not exist.
    """
    check_sizes(num_cells, num_micro_batches)
    if name in SEVERAL_CELLS_A_DEVICE:
        if layout is None:
            layout = layout_for(name, num_cells, num_devices_for(name, num_cells))
        schedule = _on_devices(name, tuple(layout), num_micro_batches)
    elif name in _ONE_CELL_A_DEVICE:
        schedule = _apart(name, num_cells, num_micro_batches)
    else:
        names = [*TRAINING, 'forward']
        nearest = difflib.get_close_matches(str(name), names, n=1, cutoff=0.0)[0]
        raise ValueError(f'schedule {name!r} is unknown; did you mean {nearest!r}? Use one of '
                         f'{", ".join(names)}.')
    if name == 'forward' or backward_cells is None:
        return schedule
    return with_backward_cells(schedule, backward_cells)


def suits(name: str, layout: Layout) -> bool:
    """Whether a builder of several cells a device is made for this layout."""
    num_cells, num_devices = len(layout), max(layout) + 1
    if name == 'interleaved':
        return layout == in_turn(num_cells, num_devices)
    return num_devices == (num_cells + 1) // 2 and layout == zigzag(num_cells, num_devices)


@functools.lru_cache(maxsize=32)
def _apart(name: str, num_cells: int, num_micro_batches: int) -> Schedule:
    return _ONE_CELL_A_DEVICE[name](num_cells, num_micro_batches)


@functools.lru_cache(maxsize=32)
def _on_devices(name: str, layout: Layout, num_micro_batches: int) -> Schedule:
    num_cells, num_devices = len(layout), max(layout) + 1
    if not suits(name, layout):
        return _listed(name, layout, num_micro_batches)
    if name == 'interleaved':
        return interleaved(num_cells, num_devices, num_micro_batches)
    return _IN_A_V[name](num_cells, num_micro_batches)


def _listed(name: str, layout: Layout, num_micro_batches: int) -> Schedule:
    """A schedule for cells that lie in another way than the builder has them."""
    num_cells, num_devices = len(layout), max(layout) + 1
    cells_per_device = max(layout.count(device) for device in layout)
    in_other_kinds = {'interleaved': num_devices, 'dual_pipe_v': num_devices + 1}
    most = in_other_kinds.get(name) or most_held(name, num_devices) // 2
    work = Workload(layout, num_micro_batches, frozenset(range(num_cells)), chain(num_cells),
                    cell_times([1.0] * num_cells, [2.0] * num_cells))
    policy = Policy([1] * num_cells, [1] * num_cells,
                    [cells_per_device * most] * num_devices,
                    splits=name != 'interleaved')
    schedule = list_schedule(name, work, policy)
    assert schedule is not None, 'list scheduling without a given order never gets stuck'
    return schedule


def with_backward_cells(schedule: Schedule, cells: Collection[int]) -> Schedule:
    """The schedule without the backwards of cells that have none."""
    backward_cells = frozenset(cells) | {schedule.num_cells - 1}
    check_backward_cells(backward_cells, schedule.num_cells)
    if backward_cells == schedule.backward_cells:
        return schedule
    return _without_other_backwards(schedule, backward_cells)


@functools.lru_cache(maxsize=32)
def _without_other_backwards(schedule: Schedule, backward_cells: frozenset[int]) -> Schedule:
    devices = tuple(tuple(slot for slot in slots if slot.kind == 'F' or slot.cell in backward_cells)
                    for slots in schedule.devices)
    return replace(schedule, devices=devices, backward_cells=backward_cells)
