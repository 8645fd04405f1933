"""Building blocks: schedules whose cells lie in a V, zb_v, v_half and v_min (arXiv 2405.15362).

A *block* says when the four F and B of one micro-batch run on each device, in units of time. The
next micro-batch follows 6 units later, as long as a device works for one: two F, two B, two W. So
once all devices are busy there is no bubble at all, if no two slots of a block meet: the four times
on each device must differ modulo 6. W take the two places that are left, and every gap before and
after.

How far apart the times of neighbouring devices lie, on the way of the forwards down the V and up
again and on that of the backwards, decides how long a micro-batch is held, and so the memory. With
D devices and steps of (2, 4, 2, 4) a device holds up to 2 D micro-batches of its two cells, which
is as much as 1f1b's first device; of (1, 2, 1, 2) half of that; of (1, 1, 1, 1) a third. Shorter
ways leave gaps at the beginning and at the end of the step.

        D = 2, steps 1   F0 .. .. F3 B3 .. .. B0       numbers are cells: time 0 to 7
                         .. F1 F2 .. .. B2 B1 ..
"""
from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence

from lingpipe.pipeline.planning.cell_times import cell_times
from lingpipe.pipeline.planning.dependencies import chain
from lingpipe.pipeline.planning.layout import Layout, zigzag
from lingpipe.pipeline.planning.list_scheduling import Policy, Workload, list_schedule
from lingpipe.pipeline.planning.schedule import Schedule, Slot

PERIOD = 6

# Units of time between neighbouring devices: forwards down the V and up, backwards down and up.
_STEPS = {'zb_v': (2, 4, 2, 4), 'v_half': (1, 2, 1, 2), 'v_min': (1, 1, 1, 1)}


# zb_v, K = 4 on 2 devices, M = 3; F2.0 is the forward of cell 2 for micro-batch 0:
#
#   F0.0 F0.1 ..   B3.0 --   F0.2 W3.0 B3.1 --   B0.0 W0.0 B3.2 --   B0.1 W0.1 B0.2 W0.2 W3.1 W3.2
#   ..   F1.0 F2.0 F1.1 F2.1 B2.0 B1.0 W1.0 F1.2 W2.0 F2.2 B2.1 B1.1 B2.2 B1.2 W1.1 W1.2 W2.1 W2.2
def zb_v(num_cells: int, num_micro_batches: int) -> Schedule:
    """No bubble for F = B = W but (D - 1) / 2 forwards of a device's share (ZB-V).

    These remain because the update is synchronous: the last device starts late, and all must have
    ended before any weight changes. A device holds up to 2 D micro-batches of its two cells.
    """
    return _v_schedule('zb_v', num_cells, num_micro_batches)


# v_half, K = 4 on 2 devices, M = 2:
#
#   F0.0 ..   ..   B3.0 --   F0.1 W3.0 ..   B3.1 --   B0.0 W0.0 B0.1 W0.1 W3.1
#   ..   F1.0 F2.0 ..   ..   B2.0 F1.1 F2.1 B1.0 W1.0 B2.1 B1.1 W1.1 W2.0 W2.1
def v_half(num_cells: int, num_micro_batches: int) -> Schedule:
    """Half of 1f1b's activations, with at most half of its bubble for F = B = W (V-Half)."""
    return _v_schedule('v_half', num_cells, num_micro_batches)


# v_min, K = 4 on 2 devices, M = 2:
#
#   F0.0 ..   ..   B3.0 --   F0.1 W3.0 B0.0 W0.0 B3.1 --   W3.1 ..   B0.1 W0.1
#   ..   F1.0 F2.0 ..   ..   B2.0 B1.0 F1.1 F2.1 W1.0 W2.0 B2.1 B1.1 W1.1 W2.1
def v_min(num_cells: int, num_micro_batches: int) -> Schedule:
    """A third of 1f1b's activations, with at most 2/3 of its bubble for F = B = W (V-Min).

    Where F, B and W are not about equal, it is slower than 1f1b.
    """
    return _v_schedule('v_min', num_cells, num_micro_batches)


def most_held(name: str, num_devices: int) -> int:
    """The most micro-batches of its two cells that a device holds, from F to W.

    2 D, 2 ((D + 2) // 2) and 2 ((D + 4) // 3), of cells that are half as large as with one a
    device.
    """
    return 2 * {'zb_v': num_devices, 'v_half': (num_devices + 2) // 2,
                'v_min': (num_devices + 4) // 3}[name]


def _v_schedule(name: str, num_cells: int, num_micro_batches: int) -> Schedule:
    """Repeats the block, lets every slot run as early as it can, and fills the gaps with W.

    An odd number of cells is that of a V whose last cell is missing.
    """
    num_devices = (num_cells + 1) // 2
    layout = zigzag(num_cells, num_devices)
    work = Workload(layout, num_micro_batches, frozenset(range(num_cells)), chain(num_cells),
                    cell_times([1.0] * num_cells, [2.0] * num_cells))
    order = _repeated(_block(_STEPS[name], num_devices), layout, num_micro_batches)
    for most in itertools.count(most_held(name, num_devices)):
        policy = Policy([1] * num_cells, [1] * num_cells, [most] * num_devices, order=order)
        schedule = list_schedule(name, work, policy)
        if schedule is not None:
            return schedule
    raise AssertionError('a V without limit gets stuck')


@functools.cache
def _block(steps: Sequence[int], num_devices: int) -> dict[str, tuple[int, ...]]:
    """The times of F and B of each of 2 D cells, for one micro-batch.

    The V may pause where it turns, but not at its end, since the last cell's F and B are one slot.
    Of the pauses that keep the slots apart, those are taken with which micro-batches are held the
    shortest.
    """
    blocks = (_times(steps, num_devices, pauses)
              for pauses in itertools.product(range(PERIOD), repeat=2))
    apart = [block for block in blocks if all(
        len({time % PERIOD for time in _times_on(block, device)}) == 4
        for device in range(num_devices))]
    return min(apart, key=lambda block: max(block['B']))


def _times(steps: Sequence[int], num_devices: int, pauses: Sequence[int]
           ) -> dict[str, tuple[int, ...]]:
    down, up, back_down, back_up = steps
    ways = [[down] * (num_devices - 1), [1 + pauses[0]], [up] * (num_devices - 1), [1],
            [back_down] * (num_devices - 1), [1 + pauses[1]], [back_up] * (num_devices - 1)]
    times = [0, *itertools.accumulate(step for way in ways for step in way)]
    num_cells = 2 * num_devices
    return {'F': tuple(times[:num_cells]), 'B': tuple(reversed(times[num_cells:]))}


def _times_on(block: dict[str, tuple[int, ...]], device: int) -> Iterator[int]:
    """The four times of a device."""
    for times in block.values():
        yield times[device]
        yield times[len(times) - 1 - device]


def _repeated(block: dict[str, tuple[int, ...]], layout: Layout, num_micro_batches: int
              ) -> list[list[Slot]]:
    """[devices] F and B of all micro-batches in the order of their times."""
    num_cells = len(layout)
    slots = [Slot(kind, k, m) for m in range(num_micro_batches) for k in range(num_cells)
             for kind in 'FB' if not (kind == 'F' and k == num_cells - 1)]
    slots.sort(key=lambda slot: block[slot.kind][slot.cell] + PERIOD * slot.micro_batch)
    return [[slot for slot in slots if layout[slot.cell] == device]
            for device in range(max(layout) + 1)]
