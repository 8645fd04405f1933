"""Replay: a step predicted from the measured times of its tasks and its update.

It is what the simulator would have said, had it known them. The measured step differs from it by
transfers, by the time that TensorFlow takes to start work, and by tasks that take longer in some
runs than in others, since later tasks on all devices wait for the slowest.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from lingpipe.pipeline.planning.breakdown import StepTimes, UpdateSpan
from lingpipe.pipeline.planning.dependencies import Edges
from lingpipe.pipeline.planning.drawing import Timeline
from lingpipe.pipeline.planning.playing import play
from lingpipe.pipeline.planning.schedule import Schedule


def replay(schedule: Schedule, edges: Edges | None, measured: Sequence[StepTimes]) -> StepTimes:
    """Plays the schedule with the mean measured times of each cell's tasks and of each update.

    A value is where it is read as soon as it is made. A device computes its norms when its tasks
    and those of the last cell are done, and its new weights when all devices have their norms.

    Args:
      schedule: of the steps.
      edges: pairs (maker cell, reader cell) between which values are passed; the chain by default.
      measured: at least one step.
    """
    seconds: dict[tuple[str, int], list[float]] = {}
    for step in measured:
        for slot, (start, end) in step.timeline.spans.items():
            seconds.setdefault((schedule.task_kind(slot), slot.cell), []).append(end - start)
    mean_s = {task: statistics.fmean(runs) for task, runs in seconds.items()}
    spans = play(schedule, lambda slot: mean_s[schedule.task_kind(slot), slot.cell], edges)

    timeline = Timeline(spans, schedule.device_of)
    return StepTimes(timeline, updates=_updates(timeline, schedule, measured))


def _updates(timeline: Timeline, schedule: Schedule,
             measured: Sequence[StepTimes]) -> dict[int, list[UpdateSpan]]:
    devices = sorted({device for step in measured for device in step.updates})
    device_of = timeline.device_of

    def mean_s(device: int, kind: str) -> float:
        """How long the device has taken for the work of this kind of all its cells."""
        return statistics.fmean(_seconds(step.updates[device], kind) for step in measured)

    last_end = max(end for slot, (_, end) in timeline.spans.items()
                   if slot.cell == schedule.num_cells - 1)
    ready_s, norms = {}, {}
    for device in devices:
        tasks_end = max(end for slot, (_, end) in timeline.spans.items()
                        if device_of[slot] == device)
        ready_s[device] = tasks_end, tasks_end + mean_s(device, 'sums')
        start = max(ready_s[device][1], last_end)
        norms[device] = start, start + mean_s(device, 'norms')

    all_norms = max((end for _, end in norms.values()), default=0.0)
    return {device: [UpdateSpan('sums', ready_s[device], ready_s[device][0], ready_s[device][0]),
                     UpdateSpan('norms', norms[device], last_end, last_end),
                     UpdateSpan('update', (all_norms, all_norms + mean_s(device, 'update')),
                                all_norms, all_norms)]
            for device in devices}


def _seconds(updates: Sequence[UpdateSpan], kind: str) -> float:
    """How long the updates of a kind take, one cell after the other."""
    return sum(update.span[1] - update.span[0] for update in updates if update.kind == kind)
