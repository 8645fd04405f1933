"""Timeline: compares measured steps with predicted ones, in numbers, a picture and a trace."""
from __future__ import annotations

import dataclasses
import json
import os
import statistics
from collections.abc import Sequence

from lingpipe.checkpoint import side_files
from lingpipe.pipeline.planning.breakdown import StepTimes
from lingpipe.pipeline.planning.cell import edges_of_tasks
from lingpipe.pipeline.planning.drawing import Timeline
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.pipeline.planning.replay import replay
from lingpipe.pipeline.planning.step_forecast import forecast_step
from lingpipe.training.reporting import breakdown_report
from lingpipe.training.reporting.breakdown_report import BreakdownReport

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
      predicted_from: the source of the planned costs, 'FLOPs' or 'the seconds of
        layers' (PipelineParams.layer_seconds).
      replayed_bubble: what the simulator predicts from the mean time of each cell's tasks in the
        measured steps.
      breakdown: the mean of the measured steps by parts, beside predictions.
      png, trace: paths of the picture and the trace, which show the measured step with the median
        bubble.
      breakdown_png: path of the picture of the parts.
    """
    step: int
    measured_bubbles: tuple[float, ...]
    predicted_bubble: float
    predicted_from: str
    replayed_bubble: float
    breakdown: BreakdownReport
    png: str
    trace: str
    breakdown_png: str

    @property
    def measured_bubble(self) -> float:
        """The median of the measured steps."""
        return statistics.median_low(self.measured_bubbles)

    def text(self) -> str:
        """Returns what there is to say of the bubble, as one line."""
        lowest, highest = min(self.measured_bubbles), max(self.measured_bubbles)
        number = len(self.measured_bubbles)
        spread = f' (median of {number} steps, {lowest:.1%} to {highest:.1%})' if number > 1 else ''
        return (f'bubble of step {self.step}: measured {self.measured_bubble:.1%}{spread}, '
                f'predicted {self.predicted_bubble:.1%} from {self.predicted_from} and '
                f'{self.replayed_bubble:.1%} from the measured times of the tasks')

    def step_text(self) -> str:
        """Returns what there is to say of the time of a step, as one line."""
        sources = {'planned': f'from {self.predicted_from}',
                   'replayed': 'from the measured times of the tasks'}
        predicted = ' and '.join(f'{breakdown.step_s * 1e3:,.1f} ms {sources[name]}'
                                 for name, breakdown in self.breakdown.predicted.items())
        return (f'{self.breakdown.title}: {self.breakdown.measured.step_s * 1e3:,.1f} ms, '
                f'predicted {predicted}')


def write_report(directory: str, step: int, plan: Plan,
                 measured: Sequence[StepTimes]) -> TimelineReport:
    """Writes DIRECTORY/step-00000012.png and .json, each with a measured and the replayed step.

    The parts of the step are in DIRECTORY/step-00000012-breakdown.png and .json.

    Args:
      directory: where the files go.
      step: the last of the measured steps, which names the files.
      plan: the plan of the steps.
      measured: the times of each measured step; the one with the median bubble is drawn.
    """
    side_files.make_directory(directory)
    path = os.path.join(directory, f'step-{step:08d}')
    replayed = replay(plan.schedule, edges_of_tasks(plan.cells), measured)
    forecast = forecast_step(plan)
    planned = forecast.simulation.timeline
    predicted = {'planned': forecast.times()} if plan.params.layer_seconds else {}

    breakdown = breakdown_report.report(
        _title(step, len(measured)), plan, measured, {**predicted, 'replayed': replayed})
    breakdown.save(f'{path}-breakdown')
    _save_timelines(path, step, [one.timeline for one in measured], replayed.timeline)

    predicted_from = 'the seconds of layers' if plan.params.layer_seconds else 'FLOPs'
    return TimelineReport(
        step, tuple(one.timeline.bubble_share for one in measured), planned.bubble_share,
        predicted_from, replayed.timeline.bubble_share, breakdown, f'{path}.png', f'{path}.json',
        f'{path}-breakdown.png')


def _save_timelines(path: str, step: int, measured: Sequence[Timeline],
                    replayed: Timeline) -> None:
    """Writes PATH.png and PATH.json."""
    for ending in ('png', 'json'):
        side_files.make_way_for_file(f'{path}.{ending}')
    shown = sorted(measured, key=lambda timeline: timeline.bubble_share)[(len(measured) - 1) // 2]
    shown.save_png(f'{path}.png', f'step {step}', other=replayed)

    events = shown.to_chrome_trace(pid=0) + replayed.to_chrome_trace(pid=1)
    events += [{'name': 'process_name', 'ph': 'M', 'pid': pid, 'args': {'name': name}}
               for pid, name in enumerate(('measured', 'predicted'))]
    with open(f'{path}.json', 'w', encoding='utf-8') as file:
        json.dump({'traceEvents': events, 'displayTimeUnit': 'ms'}, file)


def _title(step: int, num_measured: int) -> str:
    first = step - num_measured + 1
    return f'step {step}' if num_measured == 1 else f'mean of steps {first} to {step}'
