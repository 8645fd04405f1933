"""Draws every picture of the documentation, as SVG, from real plans and one measured step.

    python docs/pictures/draw.py          # writes all of them again

matplotlib was tried first. It writes each letter of an SVG as a path, so that a schedule takes
60 KB and its text cannot be searched. These pictures are rectangles and words and take a few KB
each. They are the same in every run, so tests/docs/test_pictures.py compares them with what this
file draws.
"""
from __future__ import annotations

import html
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from lingpipe.pipeline.planning.breakdown import PARTS
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.pipeline.planning.playing import play
from lingpipe.pipeline.planning.schedule import Schedule, Slot
from lingpipe.pipeline.planning.schedules import make_schedule
from lingpipe.pipeline.planning.simulator import simulate
from lingpipe.training import registry
from lingpipe.training.reporting.breakdown_report import PART_COLOURS

HERE = pathlib.Path(__file__).resolve().parent

FORWARD, BACKWARD, IDLE, MICRO_BATCH = '#7fb2e5', '#f2a65a', '#eeeeee', '#d9d9d9'
INK, FAINT = '#222222', '#777777'
CELLS = ('#7fb2e5', '#f2a65a', '#8cc084', '#d98cb3', '#b3a6d9', '#e6d17a', '#84c5c5', '#c9a38c')
FONT = 'Helvetica, Arial, sans-serif'

HEAD = f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{width}} {{height}}" width="{{width}}"
  height="{{height}}" font-family="{FONT}" font-size="12" fill="{INK}">
<title>{{title}}</title>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"
  orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{FAINT}"/></marker></defs>
<rect width="{{width}}" height="{{height}}" fill="#ffffff" rx="6"/>
"""


class Drawing:
    """A picture to which boxes, words and arrows are added."""

    def __init__(self, width: float, height: float, title: str):
        head = HEAD.format(width=f'{width:g}', height=f'{height:g}', title=html.escape(title))
        self._parts = [head]

    def box(self, x: float, y: float, width: float, height: float, colour: str, label: str = '',
            radius: float = 2) -> None:
        """Adds a rectangle with a label in its middle."""
        self._parts.append(
            f'<rect x="{_short(x)}" y="{_short(y)}" width="{_short(width)}" '
            f'height="{_short(height)}" rx="{radius:g}" fill="{colour}" stroke="#ffffff"/>\n')
        if label:
            self.words(x + width / 2, y + height / 2 + 4, label, anchor='middle')

    def words(self, x: float, y: float, text: str, *, size: float = 12, anchor: str = 'start',
              colour: str = INK) -> None:
        """Adds a line of text whose baseline is at y."""
        style = ''.join([
            f' font-size="{size:g}"' if size != 12 else '',
            f' text-anchor="{anchor}"' if anchor != 'start' else '',
            f' fill="{colour}"' if colour != INK else ''])
        place = f'x="{_short(x)}" y="{_short(y)}"'
        self._parts.append(f'<text {place}{style}>{html.escape(text)}</text>\n')

    def arrow(self, *points: tuple[float, float]) -> None:
        """Adds a line through the points, with a head at its end."""
        path = ' '.join(f'{_short(x)},{_short(y)}' for x, y in points)
        self._parts.append(f'<polyline points="{path}" fill="none" stroke="{FAINT}" '
                           'stroke-width="1.5" marker-end="url(#head)"/>\n')

    def text(self) -> str:
        """Returns the file."""
        return ''.join([*self._parts, '</svg>\n'])


def _short(number: float) -> str:
    return f'{number:.1f}'.removesuffix('.0')


# Ideas.


def pipeline() -> str:
    """A network of twelve layers in three cells, and a mini-batch of four micro-batches."""
    drawing = Drawing(740, 250, 'A network in three cells; a mini-batch in four micro-batches')
    rows = {'layers': 30, 'cells': 96, 'devices': 146, 'mini-batch': 206}
    for name, y in rows.items():
        drawing.words(20, y, name, colour=FAINT)

    for k, (first, last) in enumerate(((0, 5), (5, 8), (8, 12))):
        left, width = 120 + 50 * first, 50 * (last - first) - 4
        middle = left + width / 2
        for i in range(first, last):
            drawing.box(120 + 50 * i, 14, 46, 24, CELLS[k], str(i))
        drawing.arrow((middle, 40), (middle, 72))
        drawing.box(left, 76, width, 30, CELLS[k], f'cell {k}', radius=6)
        drawing.arrow((middle, 108), (middle, 124))
        drawing.box(left, 128, width, 26, IDLE, f'GPU {k}', radius=6)

    for m in range(4):
        drawing.box(120 + 74 * m, 188, 70, 28, MICRO_BATCH, f'micro {m}', radius=4)
    drawing.words(430, 206, 'one update after all of them', colour=FAINT)
    drawing.words(120, 240, 'Cells hold different numbers of layers, since layers differ in cost.',
                  colour=FAINT)
    return drawing.text()


def skips() -> str:
    """A value that is read two cells later, and goes straight to its reader."""
    drawing = Drawing(640, 150, 'A skip connection goes straight from its maker to its reader')
    labels = ('cell 0: writes x, skip', 'cell 1: reads x, writes x', 'cell 2: reads x, skip')
    for k, label in enumerate(labels):
        drawing.box(20 + 210 * k, 60, 180, 40, CELLS[k], label, radius=6)
    for left in (200, 410):
        drawing.arrow((left, 80), (left + 28, 80))
        drawing.words(left + 14, 96, 'x', anchor='middle', colour=FAINT)
    drawing.arrow((110, 58), (110, 30), (530, 30), (530, 57))
    drawing.words(320, 24, 'skip: sent once, not through cell 1', anchor='middle', colour=FAINT)
    drawing.words(20, 132, 'Its gradient goes back the same way.', colour=FAINT)
    return drawing.text()


def replicas() -> str:
    """Two replicas of a pipeline, with their parts of a mini-batch and the sums of gradients."""
    drawing = Drawing(640, 190, 'Two replicas of a pipeline of three cells')
    for r in range(2):
        y = 30 + 84 * r
        drawing.words(20, y + 22, f'replica {r}', colour=FAINT)
        drawing.words(20, y + 38, f'micro-batches {4 * r} to {4 * r + 3}', size=10, colour=FAINT)
        for k in range(3):
            x = 150 + 160 * k
            drawing.box(x, y, 130, 44, CELLS[k], f'cell {k} on GPU {3 * r + k}', radius=6)
            if k:
                drawing.arrow((x - 28, y + 22), (x - 2, y + 22))

    drawing.words(20, 98, 'gradients', size=10, colour=FAINT)
    for x in (215, 375, 535):
        drawing.arrow((x, 94), (x, 78))
        drawing.arrow((x, 94), (x, 111))
    drawing.words(20, 182, "A cell's gradients are summed while earlier cells still run backward.",
                  colour=FAINT)
    return drawing.text()


# Schedules.


def schedules(names: Sequence[str], num_cells: int, num_micro_batches: int) -> str:
    """Schedules on one axis of time.

    A forward takes 1, a backward 2. The last cell's slot is both, and takes 3.
    """
    left, unit, row = 84.0, 19.0, 24.0
    width = max(480, left + unit * 3 * (num_micro_batches + num_cells - 1) + 20)
    title = f'{" and ".join(names)}: {num_cells} cells, {num_micro_batches} micro-batches'
    drawing = Drawing(width, 26 + len(names) * (row * num_cells + 44), title)
    top = 12.0
    for name in names:
        schedule = make_schedule(name, num_cells, num_micro_batches)
        simulation = simulate(schedule, [1.0] * num_cells, [2.0] * num_cells)
        held = ', '.join(map(str, simulation.peak_live))
        drawing.words(left, top + 12, f'{name}: idle {simulation.bubble_share:.0%}; '
                                      f'most micro-batches held, by cell: {held}', size=13)
        _draw_schedule(drawing, schedule, left, top + 20, unit, row)
        top += row * num_cells + 36
    return drawing.text()


def _draw_schedule(drawing: Drawing, schedule: Schedule, left: float, top: float, unit: float,
                   row: float) -> None:
    """Draws a row for every device."""
    def duration(slot: Slot) -> float:
        return 3.0 if schedule.is_fused(slot) else 2.0 if slot.kind == 'B' else 1.0

    spans = play(schedule, duration)
    length = max(end for _, end in spans.values())
    for device, slots in enumerate(schedule.devices):
        y = top + device * row
        drawing.words(left - 8, y + 15, f'device {device}', anchor='end', colour=FAINT)
        drawing.box(left, y, unit * length, row - 2, IDLE)
        for slot in slots:
            start, end = spans[slot]
            label = str(slot.micro_batch)
            if schedule.is_fused(slot):
                drawing.box(left + unit * start, y, unit, row - 2, FORWARD, label)
                start += 1
            colour = FORWARD if slot.kind == 'F' else BACKWARD
            drawing.box(left + unit * start, y, unit * (end - start), row - 2, colour, label)


# A real plan.


def partition(model: str, num_cells: int) -> str:
    """What every part of a network costs: a bar a part, in the colours of its layers' cells."""
    params = registry.get(model)
    params.pipeline.num_cells = num_cells
    plan = params.instantiate().make_plan()
    flops_of_parts = _flops_by_part_and_cell(plan)

    drawing = Drawing(760, 234, f'{model}: what its parts cost, in {num_cells} cells')
    drawing.words(20, 24, f'{model}: the share of FLOPs of every part, stem first', size=13)
    step = 720 / len(flops_of_parts)
    largest = max(sum(flops_of_cells.values()) for flops_of_cells in flops_of_parts.values())
    for i, flops_of_cells in enumerate(flops_of_parts.values()):
        y = 164.0
        for k, flops in flops_of_cells.items():
            height = 120 * flops / largest
            y -= height
            drawing.box(20 + step * i, y, step, height, CELLS[k % len(CELLS)], radius=0)

    for k, cell in enumerate(plan.rows()):
        x = 20 + 720 / num_cells * k
        drawing.box(x, 174, 12, 12, CELLS[k % len(CELLS)])
        drawing.words(x + 17, 184, f'cell {k}: {cell["step_share"]:.1%}', size=11)
    drawing.words(20, 208, 'Shares are of the work in a step, in which every cell but the last '
                           'runs its forward twice (recomputation).', size=11, colour=FAINT)
    drawing.words(20, 224, 'A bar of two colours is a part whose layers are in two cells. '
                           f'Balance (mean cell / largest): {plan.forecast.balance:.1%}.',
                  size=11, colour=FAINT)
    return drawing.text()


def _flops_by_part_and_cell(plan: Plan) -> dict[str, dict[int, float]]:
    """FLOPs of the layers below each part of the network, by the cell that they are in."""
    flops_of_parts: dict[str, dict[int, float]] = {}
    for cell in plan.cells:
        for element in cell.elements:
            part = '/'.join(element.layer.path.split('/')[:3])
            flops_of_cells = flops_of_parts.setdefault(part, {})
            flops_of_cells[cell.index] = flops_of_cells.get(cell.index, 0.0) + element.cost.flops
    return flops_of_parts


# A measured step.


def timeline(trace: pathlib.Path) -> str:
    """A step as --timeline leaves it: measured, and as predicted from the measured times."""
    events = json.loads(trace.read_text(encoding='utf-8'))['traceEvents']
    slots = [event for event in events if event['ph'] == 'X']
    unit = 650 / max(slot['ts'] + slot['dur'] for slot in slots)   # Pixels a microsecond.
    drawing = Drawing(760, 196, 'A step of image.digits.AmoebaNet: measured and predicted')
    top = 12.0
    for pid, name in enumerate(('measured', 'predicted from the times of its slots')):
        top = _draw_step(drawing, name, [slot for slot in slots if slot['pid'] == pid], top, unit)
    return drawing.text()


def _draw_step(drawing: Drawing, name: str, slots: list[dict[str, Any]], top: float,
               unit: float) -> float:
    """Draws a row for every device below `top`; returns where the next step may begin."""
    left, row = 84.0, 28.0
    length = max(slot['ts'] + slot['dur'] for slot in slots)
    devices = sorted({slot['tid'] for slot in slots})
    idle = 1 - sum(slot['dur'] for slot in slots) / (length * len(devices))
    drawing.words(left, top + 12, f'{name}: {length / 1e3:.0f} ms, idle {idle:.1%}', size=13)
    for device in devices:
        y = top + 20 + device * row
        drawing.words(left - 8, y + 17, f'device {device}', anchor='end', colour=FAINT)
        drawing.box(left, y, unit * length, row - 2, IDLE)
        for slot in slots:
            if slot['tid'] == device:
                drawing.box(left + unit * slot['ts'], y, unit * slot['dur'], row - 2,
                            FORWARD if slot['cat'] == 'forward' else BACKWARD,
                            str(slot['args']['micro_batch']))
    return top + 34 + row * len(devices)


def breakdown(path: pathlib.Path) -> str:
    """The parts of a measured step, as bench_pipeline --breakdown --json prints them."""
    found = json.loads(path.read_text(encoding='utf-8'))
    bars = {'measured, mean': found['measured'],
            **{f'device {i}': seconds for i, seconds in enumerate(found['devices'])},
            **{f'{name}, mean': seconds for name, seconds in found['predicted'].items()}}
    parts = [part for part in PARTS if any(seconds[part] for seconds in bars.values())]

    left, row = 110.0, 26.0
    unit = 630 / max(found['step_s'], *(one['step_s'] for one in found['predicted'].values()))
    drawing = Drawing(760, 66 + row * len(bars), f'The parts of a step: {found["title"]}')
    drawing.words(left, 22, f'{found["title"]}: {found["step_s"] * 1e3:,.0f} ms', size=13)
    for i, (name, seconds) in enumerate(bars.items()):
        x, y = left, 32 + i * row
        drawing.words(left - 8, y + 16, name, anchor='end', colour=FAINT)
        for part in parts:
            drawing.box(x, y, unit * seconds[part], row - 4, PART_COLOURS[part], radius=0)
            x += unit * seconds[part]

    y = 44 + row * len(bars)
    for i, part in enumerate(parts):
        drawing.box(20 + 92 * i, y, 10, 10, PART_COLOURS[part])
        drawing.words(33 + 92 * i, y + 9, part.replace('_', ' '), size=11)
    return drawing.text()


def all_pictures() -> Iterator[tuple[str, str]]:
    """Yields the name of every picture, and its text."""
    yield 'pipeline.svg', pipeline()
    yield 'schedules.svg', schedules(('gpipe', '1f1b'), 4, 8)
    yield 'few-micro-batches.svg', schedules(('gpipe',), 4, 2)
    yield 'skips.svg', skips()
    yield 'replicas.svg', replicas()
    yield 'partition.svg', partition('image.imagenet.AmoebaNetD18x256', 8)
    yield 'timeline.svg', timeline(HERE / 'timeline.json')
    yield 'breakdown.svg', breakdown(HERE / 'breakdown.json')


def main() -> None:
    """Writes all pictures beside this file."""
    for name, text in all_pictures():
        (HERE / name).write_text(text, encoding='utf-8')
        print(f'{name}: {len(text) / 1024:.1f} KB')


if __name__ == '__main__':
    main()
