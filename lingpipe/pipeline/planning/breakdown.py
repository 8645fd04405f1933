"""Breakdown: what each device did during a step, as parts that add up to the step.

It is Table 4 of the GPipe paper (arXiv 1811.06965, section 3.1), for every device. A device is
always in exactly one of these parts:

    forward            in a slot F, or in the forward of the last cell's B
    backward           in a slot B; where B is not split, weight gradients are a part of it
    recomputation      in a slot R, or in the forward that a B runs again
    weight_gradients   in a slot W
    update             in the sums over replicas, the gradients' norms, or the new weights
    transfer           idle, while all that the next work needs is made and some of it is on its way
    imbalance          idle, waiting for work that another device has not done yet; as long as the
                       device has less to do in this step than the busiest one
    bubble             idle in the same way beyond that: the pipeline fills and drains
    input              the program waits for the mini-batch
    overhead           the rest: TensorFlow starts the step and its work, Python gets the results

Imbalance is what the device would have computed if it had as much work as the busiest. The busiest
device has none, so that its bubble is what the schedule costs. On average over the devices,
imbalance is the work of the busiest less that of the mean device.

What a task does inside is not stamped. The forward that B runs again does the same operations as
the F of its cell and micro-batch, so it counts for as long as that took. The last cell's B is
divided in proportion to the planned costs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from lingpipe.pipeline.planning.dependencies import Edges, dependency_graph
from lingpipe.pipeline.planning.drawing import Timeline
from lingpipe.pipeline.planning.forecast import Forecast
from lingpipe.pipeline.planning.playing import Span
from lingpipe.pipeline.planning.schedule import Schedule, Slot

PARTS = ('forward', 'backward', 'recomputation', 'weight_gradients', 'update', 'transfer',
         'imbalance', 'bubble', 'input', 'overhead')

Seconds = Mapping[str, float]
"""Seconds by part; a part without any may be missing."""


@dataclasses.dataclass(frozen=True)
class UpdateSpan:
    """A part of a device's update.

    Attributes:
      kind: 'sums' over replicas, 'norms' of the gradients, or 'update': the new weights.
      span: start and end, on the clock of the slots.
      needs_s: when other devices had made all that it needs.
      arrival_s: when that was on the device.
    """

    kind: str
    span: Span
    needs_s: float
    arrival_s: float


@dataclasses.dataclass(frozen=True)
class StepTimes:
    """When everything in a step ran: measured, or predicted by the simulator.

    Attributes:
      timeline: the slots.
      arrivals: slot -> when all that it takes was on its device. Without it, that is when the slot
        began.
      updates: device -> the parts of its update.
      call_s: seconds from having the mini-batch to having the results; None: from the start of the
        first slot to the end of the last work.
      input_s: seconds of waiting for the mini-batch before.
    """

    timeline: Timeline
    arrivals: Mapping[Slot, float] = dataclasses.field(default_factory=dict)
    updates: Mapping[int, Sequence[UpdateSpan]] = dataclasses.field(default_factory=dict)
    call_s: float | None = None
    input_s: float = 0.0

    def with_input(self, before_s: float, inside_s: float) -> StepTimes:
        """The same times of a step that has waited for its mini-batch.

        Args:
          before_s: seconds of waiting before the call.
          inside_s: seconds of waiting at the start of the call, which are not counted in it.
        """
        call_s = None if self.call_s is None else self.call_s - inside_s
        return dataclasses.replace(self, call_s=call_s, input_s=before_s + inside_s)

    @property
    def end_s(self) -> float:
        """When the last work ended, on the clock of the slots."""
        ends = [update.span[1] for updates in self.updates.values() for update in updates]
        return max([self.timeline.start_s + self.timeline.step_s, *ends])

    @property
    def step_s(self) -> float:
        """Seconds of the step, with the input before it."""
        work_s = self.end_s - self.timeline.start_s
        return self.input_s + max(self.call_s or 0.0, work_s)


@dataclasses.dataclass(frozen=True)
class Breakdown:
    """The parts of one step, or the mean of several.

    Attributes:
      devices: for each device, the seconds of all PARTS, which add up to the step.
    """

    devices: tuple[Seconds, ...]

    @property
    def step_s(self) -> float:
        """Seconds of the step."""
        return sum(self.devices[0].values())

    @property
    def mean(self) -> dict[str, float]:
        """Seconds of all PARTS, as a mean over the devices."""
        return {part: sum(device[part] for device in self.devices) / len(self.devices)
                for part in PARTS}


def mean_of(breakdowns: Sequence[Breakdown]) -> Breakdown:
    """The mean of the breakdowns of several steps of one schedule."""
    of_devices = zip(*[breakdown.devices for breakdown in breakdowns], strict=True)
    return Breakdown(tuple(
        {part: sum(one[part] for one in of_device) / len(breakdowns) for part in PARTS}
        for of_device in of_devices))


def break_down(step: StepTimes, schedule: Schedule, edges: Edges | None,
               slot_parts: Mapping[Slot, Seconds]) -> Breakdown:
    """Divides the step among the parts.

    Args:
      step: when everything ran.
      schedule: of the step.
      edges: pairs (maker cell, reader cell) between which values are passed; the chain by default.
      slot_parts: seconds of each slot by part, in any unit: what a slot took is divided in
        proportion to them. See `parts_of_slots`.
    """
    graph = dependency_graph(schedule, edges)
    devices = []
    for device in range(step.timeline.num_devices):
        seconds = dict.fromkeys(PARTS, 0.0)
        for piece in _pieces(step, device):
            for part, amount in _parts_of_piece(piece, step, graph, slot_parts).items():
                seconds[part] += amount
        devices.append(seconds)

    _take_imbalance(devices)
    work_s = step.end_s - step.timeline.start_s
    for seconds in devices:
        seconds['input'] += step.input_s
        seconds['overhead'] += step.step_s - step.input_s - work_s
    return Breakdown(tuple(devices))


def parts_of_slots(schedule: Schedule, spans: Mapping[Slot, Span],
                   forecast: Forecast) -> dict[Slot, dict[str, float]]:
    """Returns seconds by part of each slot; see the head of this file.

    Args:
      schedule: of the step.
      spans: start and end of all slots.
      forecast: the planned costs of the cells, in any unit.
    """
    times, layer_repeats = forecast.cell_times, forecast.layer_repeat_costs

    def parts(slot: Slot) -> dict[str, float]:
        """Divides the time of a slot, in seconds, by what its task did."""
        seconds = spans[slot][1] - spans[slot][0]
        if slot.kind != 'B':
            return {_PART_OF_KIND[slot.kind]: seconds}

        k = slot.cell
        forward, repeated = times.forward[k], layer_repeats[k]
        if schedule.is_fused(slot):
            both = times.of_task(k, schedule.task_kind(slot))
            return {'backward': both - forward - repeated, 'forward': forward,
                    'recomputation': repeated}

        if not schedule.is_recomputed_early(slot):
            repeated += times.repeat[k]
        f_start, f_end = spans[Slot('F', k, slot.micro_batch)]
        repeated_s = (f_end - f_start) * repeated / forward if forward else 0.0
        repeated_s = min(repeated_s, seconds)
        return {'backward': seconds - repeated_s, 'recomputation': repeated_s}

    return {slot: parts(slot) for slot in spans}


_PART_OF_KIND = {'F': 'forward', 'R': 'recomputation', 'W': 'weight_gradients'}


@dataclasses.dataclass(frozen=True)
class _Piece:
    """A time in which a device does one thing.

    Attributes:
      start, end: of the piece.
      work: the slot or the part of the update; for an idle piece, what comes next, or None.
      is_idle: whether the device does nothing.
    """

    start: float
    end: float
    work: Slot | UpdateSpan | None
    is_idle: bool

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.start


def _pieces(step: StepTimes, device: int) -> Iterator[_Piece]:
    """Cuts the step on one device, from the first slot of all to the end of all, into pieces.

    Updates of several cells may overlap each other and slots of other cells; a slot counts first.
    """
    timeline = step.timeline
    slots = sorted((span, slot) for slot, span in timeline.spans.items()
                   if timeline.device_of[slot] == device)
    updates = sorted(step.updates.get(device, ()), key=lambda update: update.span)
    at = timeline.start_s
    for (start, end), slot in [*slots, ((step.end_s, step.end_s), None)]:
        for update in updates:
            update_start, update_end = max(update.span[0], at), min(update.span[1], start)
            if update_start < update_end:
                yield _Piece(at, update_start, update, is_idle=True)
                yield _Piece(update_start, update_end, update, is_idle=False)
                at = update_end
        if at < start:
            yield _Piece(at, start, slot, is_idle=True)
        if slot is not None and at < end:
            yield _Piece(max(at, start), end, slot, is_idle=False)
        at = max(at, end)


def _parts_of_piece(piece: _Piece, step: StepTimes, graph: Mapping[Slot, Sequence[Slot]],
                    slot_parts: Mapping[Slot, Seconds]) -> dict[str, float]:
    """Seconds of a piece by part; waiting for other devices is a bubble here."""
    work = piece.work
    if not piece.is_idle:
        parts = slot_parts[work] if isinstance(work, Slot) else {'update': 1.0}
        total = sum(parts.values())
        if not total:
            return {next(iter(parts)): piece.seconds}
        return {part: piece.seconds * amount / total for part, amount in parts.items()}

    if work is None:
        return {'bubble': piece.seconds}
    if isinstance(work, UpdateSpan):
        needs_s, arrival_s, is_sent = work.needs_s, work.arrival_s, True
    else:
        spans, device_of = step.timeline.spans, step.timeline.device_of
        needs_s = max([spans[need][1] for need in graph[work]], default=piece.start)
        arrival_s = step.arrivals.get(work, piece.end)
        is_sent = any(device_of[need] != device_of[work] for need in graph[work])

    made_s = min(max(needs_s, piece.start), piece.end)
    arrived_s = min(max(arrival_s, made_s), piece.end) if is_sent else made_s
    return {'bubble': made_s - piece.start, 'transfer': arrived_s - made_s,
            'overhead': piece.end - arrived_s}


def _take_imbalance(devices: Sequence[dict[str, float]]) -> None:
    """Moves imbalance out of the bubbles."""
    busy = ('forward', 'backward', 'recomputation', 'weight_gradients', 'update')
    busy_s = [sum(seconds[part] for part in busy) for seconds in devices]
    for seconds, own_s in zip(devices, busy_s, strict=True):
        seconds['imbalance'] = min(seconds['bubble'], max(busy_s) - own_s)
        seconds['bubble'] -= seconds['imbalance']
