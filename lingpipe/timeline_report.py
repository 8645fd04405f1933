"""Timeline report: a measured step beside what was predicted, as numbers, a picture and a trace."""
from __future__ import annotations

import dataclasses
import json
import os
import statistics

from lingpipe.pipeline.plan import Plan
from lingpipe.pipeline.simulator import Simulation, simulate
from lingpipe.pipeline.timeline import Timeline


@dataclasses.dataclass(frozen=True)
class TimelineReport:
    """Shares of idle device time, from 0 to 1, and the files.

    Attributes:
      step: the step that was measured.
      measured_bubble: in that step.
      predicted_bubble: by the simulator, from FLOPs, before anything ran.
      replayed_bubble: by the simulator, from the median time of each cell's tasks in that step: what differs from the measured one
        is due to transfers and to tasks that do not always take the same time, and not to wrong FLOPs.
      png, trace: paths.
    """
    step: int
    measured_bubble: float
    predicted_bubble: float
    replayed_bubble: float
    png: str
    trace: str

    def text(self) -> str:
        """One line."""
        return (f'bubble of step {self.step}: measured {self.measured_bubble:.1%}, predicted {self.predicted_bubble:.1%} from FLOPs and '
                f'{self.replayed_bubble:.1%} from the measured times of the tasks')


def replay(plan: Plan, measured: Timeline) -> Simulation:
    """The simulation of the plan's schedule with the median measured seconds of each cell's F and B."""
    def seconds(kind: str, k: int) -> float:
        found = [end - start for task, (start, end) in measured.spans.items() if task.kind == kind and task.cell == k]
        return statistics.median(found) if found else 0.0

    k = range(len(plan.cells))
    # The last cell's B is measured with its forward in it, other cells' with their recomputation.
    return simulate(plan.schedule, [seconds('F', i) for i in k], [seconds('B', i) for i in k], edges=plan.edges)


def write_report(directory: str, step: int, plan: Plan, measured: Timeline) -> TimelineReport:
    """Writes DIRECTORY/step-00000012.png and .json, each with the measured step and the replayed one."""
    os.makedirs(directory, exist_ok=True)
    replayed = replay(plan, measured)
    path = os.path.join(directory, f'step-{step:08d}')
    measured.save_png(f'{path}.png', f'step {step}', other=replayed.timeline)
    events = measured.to_chrome_trace(pid=0) + replayed.timeline.to_chrome_trace(pid=1)
    events += [{'name': 'process_name', 'ph': 'M', 'pid': pid, 'args': {'name': name}} for pid, name in
               enumerate(('measured', 'predicted'))]
    with open(f'{path}.json', 'w', encoding='utf-8') as file:
        json.dump({'traceEvents': events, 'displayTimeUnit': 'ms'}, file)
    return TimelineReport(step, measured.bubble_share, plan.simulate().bubble_share, replayed.bubble_share, f'{path}.png', f'{path}.json')
