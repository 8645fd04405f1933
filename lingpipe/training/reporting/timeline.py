"""Timeline: compares measured steps with predicted ones, in numbers, a picture and a trace."""
from __future__ import annotations

import dataclasses
import json
import os
import statistics
from collections.abc import Sequence

from lingpipe.checkpoint import side_files
from lingpipe.pipeline.planning.drawing import Timeline
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.pipeline.planning.simulator import Simulation, simulate

WHY_THEY_DIFFER = (
    'transfers and waiting make the measured share larger than the predicted ones, and tasks that '
    'slow each other down on shared processors make it smaller')


@dataclasses.dataclass(frozen=True)
class TimelineReport:
    """Shares of idle device time, from 0 to 1, and the files.

    Attributes:
      step: the last of the measured steps.
      measured_bubbles: the share of each measured step, in the order of steps.
      predicted_bubble: what the simulator predicted from the planned costs, before anything ran.
      predicted_from: the source of the planned costs, 'FLOPs' or 'layer_seconds'.
      replayed_bubble: what the simulator predicts from the median time of each cell's tasks in the
        measured steps.
      png, trace: paths of the picture and the trace, which show the measured step with the median
        bubble.
    """
    step: int
    measured_bubbles: tuple[float, ...]
    predicted_bubble: float
    predicted_from: str
    replayed_bubble: float
    png: str
    trace: str

    @property
    def measured_bubble(self) -> float:
        """The median of the measured steps."""
        return statistics.median_low(self.measured_bubbles)

    def text(self) -> str:
        """Returns the report as one line."""
        lowest, highest = min(self.measured_bubbles), max(self.measured_bubbles)
        number = len(self.measured_bubbles)
        spread = f' (median of {number} steps, {lowest:.1%} to {highest:.1%})' if number > 1 else ''
        return (f'bubble of step {self.step}: measured {self.measured_bubble:.1%}{spread}, '
                f'predicted {self.predicted_bubble:.1%} from {self.predicted_from} and '
                f'{self.replayed_bubble:.1%} from the measured times of the tasks')


def replay(plan: Plan, measured: Sequence[Timeline]) -> Simulation:
    """Simulates the plan's schedule with the median measured seconds of each cell's F and B."""
    def seconds(kind: str, k: int) -> float:
        spans = [span for timeline in measured for task, span in timeline.spans.items()
                 if (task.kind, task.cell) == (kind, k)]
        return statistics.median(end - start for start, end in spans) if spans else 0.0

    k = range(len(plan.cells))
    # The measured B of the last cell includes its forward; that of any other cell includes its
    # recomputation.
    return simulate(plan.schedule, [seconds('F', i) for i in k], [seconds('B', i) for i in k],
                    edges=plan.edges)


def write_report(directory: str, step: int, plan: Plan,
                 measured: Sequence[Timeline]) -> TimelineReport:
    """Writes DIRECTORY/step-00000012.png and .json, each with a measured and the replayed step.

    Args:
      directory: where the files go.
      step: the last of the measured steps, which names the files.
      plan: the plan of the steps.
      measured: the timeline of each measured step; the one with the median bubble is drawn.
    """
    side_files.make_directory(directory)
    replayed = replay(plan, measured).timeline
    shown = sorted(measured, key=lambda timeline: timeline.bubble_share)[(len(measured) - 1) // 2]

    path = os.path.join(directory, f'step-{step:08d}')
    for ending in ('png', 'json'):
        side_files.make_way_for_file(f'{path}.{ending}')
    shown.save_png(f'{path}.png', f'step {step}', other=replayed)
    events = shown.to_chrome_trace(pid=0) + replayed.to_chrome_trace(pid=1)
    events += [{'name': 'process_name', 'ph': 'M', 'pid': pid, 'args': {'name': name}}
               for pid, name in enumerate(('measured', 'predicted'))]
    with open(f'{path}.json', 'w', encoding='utf-8') as file:
        json.dump({'traceEvents': events, 'displayTimeUnit': 'ms'}, file)

    predicted_from = 'layer_seconds' if plan.params.layer_seconds else 'FLOPs'
    return TimelineReport(
        step, tuple(timeline.bubble_share for timeline in measured), plan.simulate().bubble_share,
        predicted_from, replayed.bubble_share, f'{path}.png', f'{path}.json')
