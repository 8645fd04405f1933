"""Interleaved: schedules with several cells a device in an order written down by hand.

interleaved deals the cells out in turn, dual_pipe_v lays them in a V. Both are known for numbers of
micro-batches that suit them; for others they leave out the micro-batches that are too many.
"""
from __future__ import annotations

from collections.abc import Iterator

from lingpipe.pipeline.planning.layout import Layout, in_turn, zigzag
from lingpipe.pipeline.planning.schedule import Schedule, Slot


# interleaved, K = 4 on 2 devices, M = 4; F2.0 is the forward of cell 2 for micro-batch 0:
#
#   F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F2.2 B0.0 F2.3 B0.1 ..   B2.2 ..   B2.3 B0.2 B0.3
#   ..   F1.0 F1.1 B3.0 --   B3.1 --   F1.2 B1.0 F1.3 B1.1 B3.2 --   B3.3 --   B1.2 B1.3 ..
def interleaved(num_cells: int, num_devices: int, num_micro_batches: int) -> Schedule:
    """Interleaved 1f1b (arXiv 2104.04473, section 2.2), for any M.

    With v cells a device its bubble is a v-th of 1f1b's, if D divides M. The first device holds up
    to D v + D - 1 micro-batches of its cells, that is D (1 + (D - 1) / (D v)) of all of them.
    """
    num_rounds = -(-num_cells // num_devices)
    most = -(-num_micro_batches // num_devices) * num_devices
    # (round, micro-batch): a device runs as many micro-batches of a round as there are devices.
    turns = [(r, first + i) for first in range(0, most, num_devices)
             for r in range(num_rounds) for i in range(num_devices)]

    def slots(device: int) -> Iterator[Slot]:
        """All those of a device, cells and micro-batches that do not exist included."""
        forwards = [Slot('F', r * num_devices + device, m) for r, m in turns]
        backwards = [Slot('B', (num_rounds - 1 - r) * num_devices + device, m) for r, m in turns]
        ahead = min(2 * (num_devices - 1 - device) + (num_rounds - 1) * num_devices, len(forwards))
        yield from forwards[:ahead]
        for i, backward in enumerate(backwards):
            yield from forwards[ahead + i:ahead + i + 1]
            yield backward

    layout = in_turn(num_cells, num_devices)
    return _existing('interleaved', layout, num_micro_batches,
                     [slots(device) for device in range(num_devices)])


# dual_pipe_v, K = 4 on 2 devices, M = 2:
#
#   F0.0 F0.1 ..   B3.0 --   W3.0 B3.1 --   --   B0.0 --   ..   ..   B0.1 --
#   ..   F1.0 F2.0 F1.1 F2.1 B2.0 --   B1.0 --   B2.1 --   B1.1 --   ..   ..
def dual_pipe_v(num_cells: int, num_micro_batches: int) -> Schedule:
    """DualPipeV, the half of DualPipe (DeepSeek-V3, arXiv 2412.19437) that has weights once.

    Its authors overlap an F with a B of another micro-batch; here a device runs one after the
    other. It splits a B only where it begins and ends, and a device holds up to 2 D + 1
    micro-batches of its two cells.
    """
    num_devices = (num_cells + 1) // 2
    most = max(num_micro_batches, 2 * num_devices)
    lists = [_dual_pipe_v_slots(device, num_devices, most) for device in range(num_devices)]
    return _existing('dual_pipe_v', zigzag(num_cells, num_devices), num_micro_batches, lists)


def _dual_pipe_v_slots(device: int, num_devices: int, num_micro_batches: int) -> Iterator[Slot]:
    """The eight phases of a device; 0 is its cell on the way down the V and 1 the one back up."""
    cells = (device, 2 * num_devices - 1 - device)
    after = num_devices - 1 - device  # devices after this one
    counts = dict.fromkeys('F0 F1 B0 B1'.split(), 0)
    waiting: list[Slot] = []  # W whose B has run

    def run(steps: str, times: int) -> Iterator[Slot]:
        """Steps such as 'F0 b1 W': the next forward of cell 0, split backward of 1, oldest W."""
        for step in steps.split() * times:
            if step == 'W':
                yield waiting.pop(0)
                continue
            kind, cell = step[0].upper(), cells[int(step[1])]
            m = counts[kind + step[1]]
            counts[kind + step[1]] += 1
            if step[0] == 'b':
                waiting.append(Slot('W', cell, m))
            yield Slot(kind, cell, m)

    yield from run('F0', 2 * after)
    yield from run('F0 F1', device + 1)
    yield from run('b1 W F1', after)
    yield from run('F0 B1 F1 B0', num_micro_batches - 2 * num_devices + device + 1)
    yield from run('B1 F1 B0', after)
    # In the second half of these, backwards begin to be split.
    num_whole = (device + 1) // 2
    for i in range(device + 1):
        for cell in '10':
            is_early = i < num_whole or i == num_whole and cell == '1' and device % 2 == 0
            yield from run(('B' if is_early else 'b') + cell, 1)
    yield from run('W b0', after)
    yield from run('W', len(waiting))


def _existing(name: str, layout: Layout, num_micro_batches: int,
              lists: list[Iterator[Slot]]) -> Schedule:
    """The schedule of the slots that exist: the last cell has no F, since its B is that too."""
    num_cells = len(layout)
    devices = tuple(
        tuple(slot for slot in slots
              if slot.cell < num_cells and slot.micro_batch < num_micro_batches
              and not (slot.kind == 'F' and slot.cell == num_cells - 1))
        for slots in lists)
    return Schedule(name, num_cells, num_micro_batches, devices, frozenset(range(num_cells)))
