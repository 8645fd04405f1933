"""Draws what every layer of an experiment costs and how it is cut into cells, without training; --measure times every layer first.

    python -m lingpipe.tools.plot_partition --model=image.digits.AmoebaNet --num_cells=4 --output=partition.png

From top to bottom: a bar for every layer in the order of the network, coloured by its cell: forward GFLOPs, or measured milliseconds of
forward and backward; the memory of its weights; and each cell's share of the work of a step, recomputation included, beside the mean.
Sums and shares are those of lingpipe.tools.show_partition.
"""
from __future__ import annotations

import json
from typing import Any

from lingpipe.tools import parser, partition
from lingpipe.tools.command_line import command

COLOURS = ('#7fb2e5', '#f2a65a', '#8fd18a', '#e88a8a', '#b79ad6', '#c2a08a', '#eba7d6', '#b5b5b5', '#d9d27a', '#7fd3d8')
LINE_COLOUR = '#444444'
MAX_NAMED_LAYERS = 40    # more have no room for their names; the modules that hold them are named
MAX_LEVEL_NAMES = 8      # more are written upwards
NAMES_AN_INCH = 6.5      # that fit side by side, written upwards
LAYERS_AN_INCH = 50      # whose bars can be told apart
MIN_NAMED_SHARE = 0.8    # of the layers, whose modules have a name; with less, larger modules are named
MAX_WRITTEN_CELLS = 12   # more have no room for their sums


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags, draws and prints where."""
    p = parser('plot_partition', __doc__)
    partition.add_flags(p)
    p.add_output('--output', 'partition.png', 'the PNG file to write')
    args = p.parse_args(argv)
    _, plan = partition.planned(args)
    found = partition.rows(plan)
    title = f'{args.model}: {len(found["layers"])} layers in {len(found["cells"])} cells, {heading(found)}'
    save_png(args.output, found, title)
    print(json.dumps({**found, 'output': args.output}) if args.json else f'{title}; {args.output}')


def heading(found: dict[str, Any]) -> str:
    """'balance 97.1% (mean cell / slowest cell), predicted bubble 23.0%', of the rows of lingpipe.tools.partition."""
    return f'balance {found["balance"]:.1%} (mean cell / slowest cell), predicted bubble {found["bubble_share"]:.1%}'


def save_png(path: str, found: dict[str, Any], title: str) -> None:
    """Draws the rows of lingpipe.tools.partition. Raises OSError if the file cannot be written."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    layers, cells = found['layers'], found['cells']
    figure = Figure(figsize=(width_of(layers), 9), dpi=100, layout='constrained')
    FigureCanvasAgg(figure)
    costs_ax, weights_ax, cells_ax = figure.subplots(3, 1, gridspec_kw={'height_ratios': [4, 2, 2]})
    weights_ax.sharex(costs_ax)
    cost = Measure(layers, 'ms', 'ms') if 'ms' in layers[0] else Measure(layers, 'gflops', 'GFLOP')
    weights = Measure(layers, 'state_mb', 'MB')
    draw_layers(costs_ax, layers, cost, 'forward and backward, measured' if 'ms' in layers[0] else 'forward')
    draw_layers(weights_ax, layers, weights, 'weights, gradients,\nslots')
    costs_ax.tick_params(labelbottom=False)
    if len(cells) <= MAX_WRITTEN_CELLS:
        above = {'xytext': (0, 3), 'textcoords': 'offset points', 'va': 'bottom', 'fontsize': 9}
        costs_ax.annotate('cell', (0, 1), xycoords='axes fraction', ha='right', **above)
        for k, middle in enumerate(middles([row['cell'] for row in layers])):
            costs_ax.annotate(str(k), (middle, 1), xycoords=('data', 'axes fraction'), ha='center', **above)
    ticks = names(layers)
    weights_ax.set_xticks([i for i, _ in ticks], [text for _, text in ticks], rotation=0 if len(layers) <= MAX_LEVEL_NAMES else 90,
                          fontsize=8)
    draw_cells(cells_ax, found, (cost, weights))
    figure.suptitle(title)
    figure.savefig(path, format='png')


class Measure:
    """A number of every layer, in the unit that keeps the largest readable.

    Attributes:
      values: one a layer.
      unit: 'MFLOP', of values.
    """
    SMALLER = {'GFLOP': 'MFLOP', 'MFLOP': 'kFLOP', 'MB': 'kB', 'ms': 'us'}

    def __init__(self, layers: list[dict[str, Any]], name: str, unit: str):
        self.values, self.unit = [row[name] for row in layers], unit
        while 0 < max(self.values) < 0.1 and self.unit in self.SMALLER:
            self.values, self.unit = [value * 1e3 for value in self.values], self.SMALLER[self.unit]


def draw_layers(ax: Any, layers: list[dict[str, Any]], measure: Measure, label: str) -> None:
    """A bar for every layer, and a line where a cell ends."""
    ax.bar(range(len(layers)), measure.values, width=0.85 if len(layers) <= MAX_NAMED_LAYERS else 1.0,
           color=[colour(row['cell']) for row in layers])
    for i in range(1, len(layers)):
        if layers[i]['cell'] != layers[i - 1]['cell']:
            ax.axvline(i - 0.5, color=LINE_COLOUR, linewidth=0.8, linestyle=(0, (4, 3)))
    ax.set_xlim(-0.75, len(layers) - 0.25)
    ax.set_ylabel(f'{label} ({measure.unit})')
    ax.spines[['top', 'right']].set_visible(False)


def draw_cells(ax: Any, found: dict[str, Any], measures: tuple[Measure, ...]) -> None:
    """A bar for every cell: its share of the work of a step, with its number of layers and their sums."""
    cells, layers = found['cells'], found['layers']
    shares = [row['step_share'] * 100 for row in cells]
    ax.bar(range(len(cells)), shares, color=[colour(k) for k in range(len(cells))])
    mean = 100 / len(cells)
    ax.axhline(mean, color=LINE_COLOUR, linewidth=0.8)
    ax.annotate(f'mean {mean:.1f}%', (1, mean), xycoords=('axes fraction', 'data'), xytext=(3, 0), textcoords='offset points', va='center',
                fontsize=8)
    if len(cells) <= MAX_WRITTEN_CELLS:
        for k, row in enumerate(cells):
            sums = [sum(value for value, layer in zip(measure.values, layers, strict=True) if layer['cell'] == k) for measure in measures]
            lines = [f'{shares[k]:.1f}%', f'{row["num_layers"]} layers',
                     *[f'{total:,.4g} {measure.unit}' for total, measure in zip(sums, measures, strict=True)]]
            ax.annotate('\n'.join(lines), (k, 0), xytext=(0, 6), textcoords='offset points', ha='center', va='bottom', fontsize=9)
    ax.set_xticks(range(0, len(cells), -(-len(cells) // 32)))
    ax.set_xlim(-0.5, len(cells) - 0.5)
    ax.set_xlabel('cell')
    ax.set_ylabel('share of a step (%)')
    ax.spines[['top', 'right']].set_visible(False)


def names(layers: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """(place, name) along the axis: every layer if there is room, or else the modules that hold them, where each begins.

    A name is the end of a path; where two would lie on each other, that of the module with fewer layers is left out.
    """
    paths = [row['layer'].split('/') for row in layers]
    if len(paths) <= MAX_NAMED_LAYERS:
        return [(i, '/'.join(path[-2:] if len(path) > 2 else path[-1:])) for i, path in enumerate(paths)]
    apart = len(paths) / (width_of(layers) * NAMES_AN_INCH)
    for depth in range(max(map(len, paths)), 0, -1):
        found = starts(paths, depth)
        size_of = {i: stop - i for i, stop in zip(found, [*found[1:], len(paths)], strict=True)}
        chosen: list[int] = []
        for i in sorted(found, key=lambda i: -size_of[i]):
            if all(abs(i - other) >= apart for other in chosen):
                chosen.append(i)
        if sum(size_of[i] for i in chosen) >= MIN_NAMED_SHARE * len(paths):
            break
    ends = {i: paths[i][:depth] for i in sorted(chosen)}
    is_unique = len({end[-1] for end in ends.values()}) == len(ends)
    return [(i, '/'.join(end[-1:] if is_unique else end[-2:])) for i, end in ends.items()]


def width_of(layers: list[dict[str, Any]]) -> float:
    """Inches of the picture."""
    return min(max(14.0, len(layers) / LAYERS_AN_INCH), 40.0)


def starts(paths: list[list[str]], depth: int) -> list[int]:
    """Where the first `depth` names of a path differ from those of the path before it."""
    return [i for i in range(len(paths)) if i == 0 or paths[i][:depth] != paths[i - 1][:depth]]


def middles(cells: list[int]) -> list[float]:
    """The middle place of every cell's layers."""
    return [(cells.index(k) + len(cells) - 1 - cells[::-1].index(k)) / 2 for k in range(cells[-1] + 1)]


def colour(k: int) -> str:
    """Of cell k; neighbours differ."""
    return COLOURS[k % len(COLOURS)]


if __name__ == '__main__':
    main()
