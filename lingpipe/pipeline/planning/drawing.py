"""Drawing: a schedule as a grid of letters, and the timeline of a step as a picture or a trace.

A Timeline says when and where each slot of a step ran, as measured or as predicted by the
simulator. Its picture (one row a device) and its trace file for chrome://tracing or
ui.perfetto.dev look alike for both, so that a prediction and a measurement can be laid one above
the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lingpipe.pipeline.planning.dependencies import Edges
from lingpipe.pipeline.planning.playing import Span, play
from lingpipe.pipeline.planning.schedule import Schedule, Slot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CATEGORIES = {'F': 'forward', 'B': 'backward', 'W': 'weight gradients', 'R': 'recomputation'}
COLOURS = {'F': '#7fb2e5', 'B': '#f2a65a', 'W': '#8cc98f', 'R': '#c9b3e0'}
OTHER_COLOUR = '#bbbbbb'


@dataclass(frozen=True)
class Timeline:
    """The slots of one step: start and end in seconds on any one clock, and the device of each."""

    spans: Mapping[Slot, Span]
    device_of: Mapping[Slot, int]

    def __post_init__(self) -> None:
        if not self.spans:
            raise ValueError('the timeline has no tasks; give the span of at least one.')
        for slot, (start_s, end_s) in self.spans.items():
            if not start_s <= end_s:
                raise ValueError(f'{slot} starts at {start_s} s and ends at {end_s} s; give '
                                 '(start, end) on one clock.')
            if slot not in self.device_of:
                raise ValueError(f'{slot} has a span but no device; add it to device_of.')

    @property
    def num_devices(self) -> int:
        """1 + the largest device: one below it counts even if it has no slot."""
        return 1 + max(self.device_of.values())

    @property
    def start_s(self) -> float:
        """When the first slot starts, on the clock of the spans."""
        return min(start for start, _ in self.spans.values())

    @property
    def step_s(self) -> float:
        """Seconds from the start of the first slot to the end of the last."""
        return max(end for _, end in self.spans.values()) - self.start_s

    def busy_s(self, device: int) -> float:
        """Seconds that a device spends in slots."""
        return sum(end - start for slot, (start, end) in self.spans.items()
                   if self.device_of[slot] == device)

    @property
    def busy_share(self) -> float:
        """Share of the devices' time that is spent in slots, from 0 to 1.

        It is 1 for a step that takes no time.
        """
        busy_s = sum(end - start for start, end in self.spans.values())
        return busy_s / (self.num_devices * self.step_s) if self.step_s > 0 else 1.0

    @property
    def bubble_share(self) -> float:
        """Share of the devices' time that is idle: 1 - busy / (devices * step)."""
        return 1 - self.busy_share

    def to_chrome_trace(self, pid: int = 0) -> list[dict[str, Any]]:
        """Returns the slots as complete events of the Trace Event Format.

        Each device is a thread. Times are in us.

        Args:
          pid: the process they are shown under; two timelines with two of them fit in one file.
        """
        start_s = self.start_s
        in_order = sorted(self.spans.items(), key=lambda item: (item[1], item[0]))
        return [
            {
                'name': f'{slot.kind}{slot.micro_batch}',
                'cat': CATEGORIES.get(slot.kind, slot.kind),
                'ph': 'X',
                'ts': (start - start_s) * 1e6,
                'dur': (end - start) * 1e6,
                'pid': pid,
                'tid': self.device_of[slot],
                'args': {'cell': slot.cell, 'micro_batch': slot.micro_batch},
            }
            for slot, (start, end) in in_order
        ]

    def save_png(self, path: str | os.PathLike[str], title: str = '',
                 other: Timeline | None = None) -> None:
        """Draws the timeline, a row a device. Needs matplotlib.

        Args:
          path: of the picture.
          title: over it.
          other: is drawn below as predicted, and this one as measured. Both share the time axis, so
            that a longer step looks longer.
        """
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        timelines = [self] if other is None else [self, other]
        labels = [''] if other is None else ['measured: ', 'predicted: ']
        heights = [timeline.num_devices for timeline in timelines]
        figure = Figure(figsize=(12, 1.2 + 0.7 * len(timelines) + 0.4 * sum(heights)), dpi=100,
                        layout='constrained')
        FigureCanvasAgg(figure)
        axes = figure.subplots(len(timelines), 1, sharex=True, squeeze=False,
                               gridspec_kw={'height_ratios': heights})[:, 0]

        longest_s = max(timeline.step_s for timeline in timelines) or 1.0
        scale, unit = _scale_and_unit(longest_s)
        for ax, label, timeline in zip(axes, labels, timelines, strict=True):
            timeline._draw(ax, scale, longest_s)
            ax.set_title(f'{label}step {timeline.step_s * scale:.4g} {unit}, '
                         f'bubble {timeline.bubble_share:.1%}', fontsize=10, loc='left')
        axes[-1].set_xlim(0, longest_s * scale)
        axes[-1].set_xlabel(f'time ({unit})')
        _add_legend(axes[0], {slot.kind for timeline in timelines for slot in timeline.spans})
        if title:
            figure.suptitle(title)
        figure.savefig(path, format='png')

    def _draw(self, ax: Axes, scale: float, longest_s: float) -> None:
        """Draws one box a slot, with the number of its micro-batch where there is room for it."""
        start_s = self.start_s
        text_s = longest_s / 150  # about the width of a digit
        for slot, (start, end) in self.spans.items():
            left, width = (start - start_s) * scale, (end - start) * scale
            row = self.device_of[slot]
            ax.broken_barh([(left, width)], (row - 0.4, 0.8), edgecolors='white', linewidth=0.5,
                           facecolors=COLOURS.get(slot.kind, OTHER_COLOUR))
            text = str(slot.micro_batch)
            if end - start >= text_s * (len(text) + 0.3):
                ax.text(left + width / 2, row, text, ha='center', va='center', fontsize=8)
        ax.set_ylim(self.num_devices - 0.5, -0.5)
        ax.set_yticks(range(self.num_devices),
                      [f'device {device}' for device in range(self.num_devices)])


def _scale_and_unit(longest_s: float) -> tuple[float, str]:
    if longest_s >= 1:
        return 1.0, 's'
    return (1e3, 'ms') if longest_s >= 1e-3 else (1e6, 'us')


def _add_legend(ax: Axes, kinds: set[str]) -> None:
    """Says which colour is which kind of slot: forward, backward and then any other."""
    from matplotlib.patches import Patch

    in_order = [kind for kind in COLOURS if kind in kinds] + sorted(kinds - set(COLOURS))
    patches = [Patch(facecolor=COLOURS.get(kind, OTHER_COLOUR), edgecolor='white',
                     label=CATEGORIES.get(kind, kind)) for kind in in_order]
    ax.legend(handles=patches, loc='lower right', bbox_to_anchor=(1, 1), ncols=len(in_order),
              fontsize=8, frameon=False)


def grid(schedule: Schedule, columns_of: Callable[[Slot], int] | None = None,
         edges: Edges | None = None) -> str:
    """Draws the schedule: a row a device, a column a unit of time, `..` where the device is idle.

    Args:
      schedule: a valid schedule.
      columns_of: how many columns a slot takes, at least 1; by default 1, and one more for the last
        cell's B, which is a forward too, and for a B that is whole where others are split. The
        columns after a slot's first show `--`.
      edges: pairs (maker, reader); the chain by default.

    Returns:
      Lines such as `F0 F1 .. B0`: kind and micro-batch, with the cell between (`F2.0`: cell 2,
      micro-batch 0) unless each row is the cell of its number.
    """
    spans = play(schedule, columns_of or _default_columns(schedule), edges)
    num_columns = int(max(end for _, end in spans.values()))
    shows_cell = any(slot.cell != device for slot, device in schedule.device_of.items())
    rows = []
    for slots in schedule.devices:
        row = ['..'] * num_columns
        for slot in slots:
            start, end = (int(time) for time in spans[slot])
            cell = f'{slot.cell}.' if shows_cell else ''
            row[start:end] = [f'{slot.kind}{cell}{slot.micro_batch}', *['--'] * (end - start - 1)]
        rows.append(row)
    width = max(len(text) for row in rows for text in row)
    return '\n'.join(' '.join(text.ljust(width) for text in row).rstrip() for row in rows)


def _default_columns(schedule: Schedule) -> Callable[[Slot], int]:
    splits = any(slot.kind == 'W' for slot in schedule.device_of)

    def columns_of(slot: Slot) -> int:
        is_whole = slot.kind == 'B' and splits and not schedule.is_split(slot)
        return 1 + schedule.is_fused(slot) + is_whole

    return columns_of
