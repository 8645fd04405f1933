"""Breakdown report: the parts of a step as measured and as predicted, as a table and a picture.

planning/breakdown.py says what the parts are.
"""
from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from lingpipe.checkpoint import side_files
from lingpipe.pipeline.planning.breakdown import (
    PARTS,
    Breakdown,
    StepTimes,
    break_down,
    mean_of,
    parts_of_slots,
)
from lingpipe.pipeline.planning.cell import edges_of_tasks
from lingpipe.pipeline.planning.drawing import COLOURS
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.training.reporting.plan_table import one_line, rendered

PART_COLOURS = {
    'forward': COLOURS['F'], 'backward': COLOURS['B'], 'recomputation': COLOURS['R'],
    'weight_gradients': COLOURS['W'], 'update': '#7a9e9f', 'transfer': '#e3c567',
    'imbalance': '#d98c8c', 'bubble': '#d9d9d9', 'input': '#8d99ae', 'overhead': '#6b6b6b'}

MAX_BARS = 16   # devices that a picture shows: the mean is there in any case


@dataclasses.dataclass(frozen=True)
class BreakdownReport:
    """The mean of the measured steps, beside predictions of a step.

    Attributes:
      title: which steps these are.
      measured: the mean of the measured steps.
      predicted: name -> a prediction in seconds: 'planned' from the costs of the plan, before
        anything ran, if these are seconds; 'replayed' from the measured times of the
        tasks and the update.
      notes: what is to be known about the numbers.
      plan: `one_line` of the plan of these steps.
    """
    title: str
    measured: Breakdown
    predicted: dict[str, Breakdown]
    notes: tuple[str, ...]
    plan: str = ''

    def errors(self) -> dict[str, float]:
        """Name of a prediction -> how much longer (above 0) or shorter than the measured step."""
        return {name: breakdown.step_s / self.measured.step_s - 1
                for name, breakdown in self.predicted.items()}

    def text(self) -> str:
        """Returns the table and the notes; no line has more than 80 columns."""
        unit, scale = ('s', 1.0) if self.measured.step_s >= 10 else ('ms', 1e3)
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style='bold')
        table.add_column('part', no_wrap=True)
        names = ('share', f'mean {unit}', 'lowest', 'highest', *self.predicted)
        for name in names:
            table.add_column(name, justify='right', no_wrap=True)

        def add(part: str, seconds: Sequence[float], predicted: Sequence[float]) -> None:
            mean_s = sum(seconds) / len(seconds)
            numbers = [mean_s, min(seconds), max(seconds), *predicted]
            table.add_row(part.replace('_', ' '), f'{mean_s / self.measured.step_s:.1%}',
                          *[f'{number * scale:,.1f}' for number in numbers])

        for part in PARTS:
            add(part, [device[part] for device in self.measured.devices],
                [breakdown.mean[part] for breakdown in self.predicted.values()])
        add('step', [self.measured.step_s],
            [breakdown.step_s for breakdown in self.predicted.values()])
        lines = [self.title, *rendered(table).split('\n')]
        lines = [line.rstrip() for line in lines if line.strip()]
        lines += [f'{name}: {error:+.1%} of the measured step'
                  for name, error in self.errors().items()]
        return '\n'.join([*lines, *self.notes])

    def to_json(self) -> dict[str, Any]:
        """Returns the numbers, in seconds, for programs."""
        return {'title': self.title,
                'plan': self.plan,
                'step_s': self.measured.step_s,
                'measured': self.measured.mean,
                'devices': [dict(device) for device in self.measured.devices],
                'predicted': {name: {'step_s': breakdown.step_s, **breakdown.mean}
                              for name, breakdown in self.predicted.items()},
                'notes': list(self.notes)}

    def save(self, path: str) -> None:
        """Writes PATH.json and PATH.png."""
        for ending in ('json', 'png'):
            side_files.make_way_for_file(f'{path}.{ending}')
        with open(f'{path}.json', 'w', encoding='utf-8') as file:
            json.dump(self.to_json(), file, indent=1)
        self.save_png(f'{path}.png')

    def save_png(self, path: str) -> None:
        """Draws a stacked bar for the mean, each device and each prediction."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        bars: dict[str, Any] = {'measured, mean': self.measured.mean}
        if 1 < len(self.measured.devices) <= MAX_BARS:
            bars.update({f'device {i}': seconds
                         for i, seconds in enumerate(self.measured.devices)})
        bars.update({f'{name}, mean': breakdown.mean
                     for name, breakdown in self.predicted.items()})

        figure = Figure(figsize=(12, 1.6 + 0.35 * len(bars)), dpi=100, layout='constrained')
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        ends_ms = [0.0] * len(bars)
        for part in PARTS:
            widths_ms = [seconds[part] * 1e3 for seconds in bars.values()]
            if any(widths_ms):
                axes.barh(list(bars), widths_ms, left=ends_ms, color=PART_COLOURS[part],
                          edgecolor='white', linewidth=0.5, label=part.replace('_', ' '))
            ends_ms = [end + width for end, width in zip(ends_ms, widths_ms, strict=True)]

        axes.invert_yaxis()
        axes.set_xlabel('time (ms)')
        axes.set_title(self.title, fontsize=10, loc='left')
        figure.legend(loc='outside lower center', ncols=len(PARTS) // 2, frameon=False, fontsize=8)
        figure.savefig(path, format='png')


def report(title: str, plan: Plan, measured: Sequence[StepTimes],
           predicted: dict[str, StepTimes]) -> BreakdownReport:
    """Breaks down the measured steps and predictions of them.

    Args:
      title: which steps these are.
      plan: of the steps.
      measured: one or more steps.
      predicted: name -> a prediction, in seconds.
    """
    edges = edges_of_tasks(plan.cells)

    def breakdown_of(step: StepTimes) -> Breakdown:
        parts = parts_of_slots(plan.schedule, step.timeline.spans, plan.forecast)
        return break_down(step, plan.schedule, edges, parts)

    return BreakdownReport(title, mean_of([breakdown_of(step) for step in measured]),
                           {name: breakdown_of(step) for name, step in predicted.items()},
                           tuple(_notes(plan)), one_line(plan))


def _notes(plan: Plan) -> list[str]:
    """Says which parts are estimates for this plan, a line of at most 80 columns each."""
    slots, schedule = plan.schedule.device_of, plan.schedule
    last = plan.partition.num_cells - 1
    notes = []
    if any(schedule.is_fused(slot) for slot in slots):
        by = 'measured layers' if plan.params.layer_seconds else 'FLOPs'
        notes.append(f"cell {last}'s forward is a part of its B, which is divided by {by}.")
    if any(cost for cost in plan.forecast.weight_costs) and not all(
            schedule.is_split(slot) for slot in slots if slot.kind == 'B'):
        notes.append('Where B is not split, weight gradients are a part of backward.')
    if any(plan.forecast.repeat_costs):
        notes.append('Recomputation in a B counts as long as the F that it repeats.')
    return notes
