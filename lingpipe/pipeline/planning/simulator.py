"""Simulator: predicts time, bubble and peak memory of one step from the costs of each cell.

The model is that of a device which runs one slot at a time, in the order of its schedule, and sends
what it made while it computes on. K cells, M micro-batches, k a cell, m a micro-batch.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from lingpipe.pipeline.planning.cell_times import cell_times, per_cell
from lingpipe.pipeline.planning.dependencies import Edges
from lingpipe.pipeline.planning.drawing import Timeline
from lingpipe.pipeline.planning.memory import Footprint
from lingpipe.pipeline.planning.peaks import most_live, peaks
from lingpipe.pipeline.planning.playing import Span, play
from lingpipe.pipeline.planning.schedule import Schedule, Slot
from lingpipe.pipeline.planning.validation import validate

# Seconds from one cell to another: one number, or a function of (sending cell, receiving cell).
Delay = Callable[[int, int], float] | float


@dataclasses.dataclass(frozen=True)
class Simulation:
    """What `simulate` predicts for one step."""

    timeline: Timeline
    peak_live: tuple[int, ...]  # [K] most micro-batches of the cell held at once
    peak_bytes: tuple[float, ...]  # [devices]
    update_s: float = 0.0  # of the slowest device, when all slots have ended

    @property
    def spans(self) -> dict[Slot, Span]:
        """Start and end of every slot, in seconds."""
        return dict(self.timeline.spans)

    @property
    def step_s(self) -> float:
        """Seconds from the start of the first slot to the end of the update."""
        return self.timeline.step_s + self.update_s

    @property
    def busy_share(self) -> float:
        """Share of the devices' time in slots, 0 to 1; the update does not count."""
        return self.timeline.busy_share

    @property
    def bubble_share(self) -> float:
        """1 - busy_share."""
        return self.timeline.bubble_share

    def to_trace(self) -> list[dict[str, Any]]:
        """Returns the events of a Chrome or Perfetto trace; see `Timeline.to_chrome_trace`."""
        return self.timeline.to_chrome_trace()


def simulate(schedule: Schedule, forward_s: Sequence[float], backward_s: Sequence[float], *,
             edges: Edges | None = None, transfer_s: Delay = 0.0, link_s: Delay = 0.0,
             held_bytes: Sequence[float] | None = None, fixed_bytes: Sequence[float] | None = None,
             working_bytes: Sequence[float] | None = None,
             handed_bytes: Sequence[float] | None = None, weight_s: Sequence[float] | None = None,
             split_s: float | Sequence[float] = 0.0, update_s: Sequence[float] | None = None,
             recompute: bool | Sequence[float] = False) -> Simulation:
    """Simulates one step; peaks.py says when a micro-batch is live in a cell.

    Args:
      schedule: any valid schedule.
      forward_s: [K] seconds of a cell's forward for one micro-batch.
      backward_s: [K] seconds of its backward, without recomputation; not read for a cell without B.
      edges: pairs (maker cell, reader cell), skip connections included; the chain by default.
      transfer_s: seconds from the end of a slot until a slot on another device can use its result.
        As a function it is asked for activations along an edge and for gradients against it. It
        delays only the receiving slot.
      link_s: seconds, before those, that it occupies the link between the two devices: bytes /
        bandwidth. A link carries one result at a time in each direction, in the order in which they
        are read.
      held_bytes: [K] bytes a cell holds for each live micro-batch. With recomputation, its inputs.
      fixed_bytes: [K] bytes a cell holds throughout: weights, optimizer slots, gradient sums.
      working_bytes: [K] bytes a cell holds besides while one of its B runs: what it computes again.
      handed_bytes: [K] bytes that a cell holds between a split B and its W; by default held_bytes.
      weight_s: [K] the part of backward_s that W takes where the backward is split; half of it by
        default.
      split_s: seconds that splitting a backward costs, of all cells or [K]; half in B, half in W.
      update_s: [K] seconds in which the weights of a cell are updated. The update is synchronous,
        so no device begins before all slots have ended.
      recompute: as of `cell_times`: what each B, or its R if it has one, runs again.

    Returns:
      Times, shares and peaks: of several cells on a device, those of their sum.

    Raises:
      ValueError: an invalid schedule or edge, or costs that are not K finite numbers of 0 or more.
    """
    num_cells = schedule.num_cells
    times = cell_times(per_cell('forward_s', forward_s, num_cells), backward_s, weight_s, recompute,
                       split_s)
    updates = per_cell('update_s', update_s, num_cells)
    footprints = _footprints(num_cells, fixed_bytes, held_bytes, working_bytes, handed_bytes)
    validate(schedule, edges)

    arrival_of = _Links(schedule, transfer_s, link_s).arrival_of
    spans = play(schedule, times.of(schedule), edges, arrival_of)
    update = max(sum(updates[k] for k in {slot.cell for slot in slots})
                 for slots in schedule.devices)
    return Simulation(Timeline(spans, schedule.device_of), most_live(schedule),
                      tuple(peaks(schedule, footprints)), update)


def _footprints(num_cells: int, fixed_bytes: Sequence[float] | None,
                held_bytes: Sequence[float] | None, working_bytes: Sequence[float] | None,
                handed_bytes: Sequence[float] | None) -> list[Footprint]:
    """What each cell holds, of the bytes that `simulate` was given."""
    fixed = per_cell('fixed_bytes', fixed_bytes, num_cells)
    held = per_cell('held_bytes', held_bytes, num_cells)
    working = per_cell('working_bytes', working_bytes, num_cells)
    handed = held if handed_bytes is None else per_cell('handed_bytes', handed_bytes, num_cells)
    return [Footprint(fixed[k], held[k], working[k], handed=handed[k]) for k in range(num_cells)]


class _Links:
    """The links between devices while a step is played: when each of them is free again."""

    def __init__(self, schedule: Schedule, transfer_s: Delay, link_s: Delay):
        self._device_of = schedule.device_of
        self._transfer_s, self._link_s = transfer_s, link_s
        self._free_at: dict[tuple[int, int], float] = {}

    def arrival_of(self, maker: Slot, reader: Slot, end: float) -> float:
        """When the result of `maker`, which ends at `end`, is there for `reader`."""
        link = (self._device_of[maker], self._device_of[reader])
        if link[0] == link[1]:
            return end

        sent_at = end
        occupied_s = _seconds('link_s', self._link_s, maker.cell, reader.cell)
        if occupied_s:
            sent_at = max(end, self._free_at.get(link, 0.0)) + occupied_s
            self._free_at[link] = sent_at
        return sent_at + _seconds('transfer_s', self._transfer_s, maker.cell, reader.cell)


def bound(num_cells: int, num_micro_batches: int) -> float:
    """The most that K equal cells can speed up a step of M micro-batches: K M / (M + K - 1).

    From the bubble's share (K - 1)/(M + K - 1) of GPipe, arXiv 1811.06965, section 2.3; it holds
    for gpipe and 1f1b.
    """
    if num_cells < 1 or num_micro_batches < 1:
        raise ValueError(f'num_cells={num_cells} and num_micro_batches={num_micro_batches} make no '
                         'pipeline; use 1 or more of each.')
    return num_cells * num_micro_batches / (num_micro_batches + num_cells - 1)


def _seconds(name: str, delay: Delay, sender: int, receiver: int) -> float:
    seconds = delay(sender, receiver) if callable(delay) else delay
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f'{name} from cell {sender} to cell {receiver} is {seconds}; give '
                         'seconds, finite and 0 or more.')
    return seconds
