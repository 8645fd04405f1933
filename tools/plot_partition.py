"""Draws what every layer of an experiment costs, and how the layers are cut into cells.

    python -m lingpipe.tools.plot_partition --model=image.digits.AmoebaNet --num_cells=4 \\
        --output=partition.png

Nothing is trained; --measure times every layer first. The picture has three parts, from top to
bottom. The first two have a bar for every layer in the order of the network, coloured by its cell:
forward GFLOPs, or measured milliseconds of forward and backward; and the memory of its weights. The
third has a bar for every cell, its share of the work of a step, recomputation included, beside the
mean. Sums and shares are those of lingpipe.tools.show_partition.
"""
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lingpipe.tools import parser, partition
from lingpipe.tools.command_line import command
from lingpipe.wording.counts import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]   # of lingpipe.tools.partition: a layer or a cell

COLOURS = ('#7fb2e5', '#f2a65a', '#8fd18a', '#e88a8a', '#b79ad6', '#c2a08a', '#eba7d6', '#b5b5b5',
           '#d9d27a', '#7fd3d8')
LINE_COLOUR = '#444444'
MAX_NAMED_LAYERS = 40    # more layers have no room for names; the modules that hold them have names
MAX_LEVEL_NAMES = 8      # more names are written upwards
NAMES_AN_INCH = 6.5      # names that fit side by side, written upwards
LAYERS_AN_INCH = 50      # layers whose bars can be told apart
MIN_NAMED_SHARE = 0.8    # of the layers; if modules with fewer are named, larger modules are taken
MAX_WRITTEN_CELLS = 12   # more cells have no room for their sums


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags, draws and prints where."""
    p = parser('plot_partition', __doc__)
    partition.add_flags(p)
    p.add_output('--output', 'partition.png', 'the PNG file to write')
    args = p.parse_args(argv)
    _, plan = partition.planned(args)
    rows = partition.rows(plan)
    title = (f'{args.model}: {counted(len(rows["layers"]), "layer")} in '
             f'{counted(len(rows["cells"]), "cell")}, {heading(rows)}')
    save_png(args.output, rows, title)
    print(json.dumps({**rows, 'output': args.output}) if args.json else f'{title}; {args.output}')


def heading(rows: dict[str, Any]) -> str:
    """Returns 'balance 97.1% (mean cell / slowest cell), predicted bubble 23.0%'."""
    return (f'balance {rows["balance"]:.1%} (mean cell / slowest cell), predicted bubble '
            f'{rows["bubble_share"]:.1%}')


def save_png(path: str, rows: dict[str, Any], title: str) -> None:
    """Draws the rows of lingpipe.tools.partition. Raises OSError if the file cannot be written."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    layers = rows['layers']
    is_measured = 'ms' in layers[0]
    cost = Measure(layers, 'ms', 'ms') if is_measured else Measure(layers, 'gflops', 'GFLOP')
    weights = Measure(layers, 'state_mb', 'MB')

    figure = Figure(figsize=(width_of(layers), 9), dpi=100, layout='constrained')
    FigureCanvasAgg(figure)
    costs_ax, weights_ax, cells_ax = figure.subplots(3, 1, gridspec_kw={'height_ratios': [4, 2, 2]})
    weights_ax.sharex(costs_ax)
    draw_layers(costs_ax, layers, cost,
                'forward and backward, measured' if is_measured else 'forward')
    draw_layers(weights_ax, layers, weights, 'weights, gradients,\nslots')
    draw_cells(cells_ax, rows, (cost, weights))

    costs_ax.tick_params(labelbottom=False)
    if len(rows['cells']) <= MAX_WRITTEN_CELLS:
        number_cells(costs_ax, layers)
    ticks = names(layers)
    weights_ax.set_xticks([i for i, _ in ticks], [name for _, name in ticks],
                          rotation=0 if len(layers) <= MAX_LEVEL_NAMES else 90, fontsize=8)
    figure.suptitle(title)
    figure.savefig(path, format='png')


class Measure:
    """A number of every layer, in the unit that keeps the largest readable.

    Attributes:
      values: one a layer.
      unit: of the values, as 'MFLOP'.
    """
    SMALLER = {'GFLOP': 'MFLOP', 'MFLOP': 'kFLOP', 'MB': 'kB', 'ms': 'us'}

    def __init__(self, layers: Sequence[Row], name: str, unit: str):
        """
        Args:
          layers: the rows.
          name: of the number in a row.
          unit: of the number.
        """
        self.values: list[float] = [row[name] for row in layers]
        self.unit = unit
        while 0 < max(self.values) < 0.1 and self.unit in self.SMALLER:
            self.values = [value * 1e3 for value in self.values]
            self.unit = self.SMALLER[self.unit]


def number_cells(ax: Axes, layers: Sequence[Row]) -> None:
    """Writes the number of each cell above its layers."""
    above: dict[str, Any] = {'xytext': (0, 3), 'textcoords': 'offset points', 'va': 'bottom',
                             'fontsize': 9}
    ax.annotate('cell', (0, 1), xycoords='axes fraction', ha='right', **above)
    for k, middle in enumerate(middles([row['cell'] for row in layers])):
        ax.annotate(str(k), (middle, 1), xycoords=('data', 'axes fraction'), ha='center', **above)


def draw_layers(ax: Axes, layers: Sequence[Row], measure: Measure, label: str) -> None:
    """Draws a bar for every layer, and a line where a cell ends."""
    width = 0.85 if len(layers) <= MAX_NAMED_LAYERS else 1.0
    ax.bar(range(len(layers)), measure.values, width=width,
           color=[colour(row['cell']) for row in layers])
    for i in range(1, len(layers)):
        if layers[i]['cell'] != layers[i - 1]['cell']:
            ax.axvline(i - 0.5, color=LINE_COLOUR, linewidth=0.8, linestyle=(0, (4, 3)))
    ax.set_xlim(-0.75, len(layers) - 0.25)
    ax.set_ylabel(f'{label} ({measure.unit})')
    ax.spines[['top', 'right']].set_visible(False)


def draw_cells(ax: Axes, rows: dict[str, Any], measures: tuple[Measure, ...]) -> None:
    """Draws the share of every cell in the work of a step, with the sums of its layers."""
    cells = rows['cells']
    shares = [row['step_share'] * 100 for row in cells]
    ax.bar(range(len(cells)), shares, color=[colour(k) for k in range(len(cells))])
    mean = 100 / len(cells)
    ax.axhline(mean, color=LINE_COLOUR, linewidth=0.8)
    ax.annotate(f'mean {mean:.1f}%', (1, mean), xycoords=('axes fraction', 'data'), xytext=(3, 0),
                textcoords='offset points', va='center', fontsize=8)
    if len(cells) <= MAX_WRITTEN_CELLS:
        cell_of_layer = [row['cell'] for row in rows['layers']]
        for k, row in enumerate(cells):
            lines = [f'{shares[k]:.1f}%', counted(row['num_layers'], 'layer')]
            for measure in measures:
                total = sum(value for value, cell in zip(measure.values, cell_of_layer, strict=True)
                            if cell == k)
                lines.append(f'{total:,.4g} {measure.unit}')
            ax.annotate('\n'.join(lines), (k, 0), xytext=(0, 6), textcoords='offset points',
                        ha='center', va='bottom', fontsize=9)
    ax.set_xticks(range(0, len(cells), -(-len(cells) // 32)))
    ax.set_xlim(-0.5, len(cells) - 0.5)
    ax.set_xlabel('cell')
    ax.set_ylabel('share of a step (%)')
    ax.spines[['top', 'right']].set_visible(False)


def names(layers: Sequence[Row]) -> list[tuple[int, str]]:
    """Returns (place, name) along the axis.

    Every layer has a name if there is room, or else every module that holds layers, where it
    begins. A name is the end of a path. Where two names would overlap, that of the module with
    fewer layers is left out.
    """
    paths = [row['layer'].split('/') for row in layers]
    if len(paths) <= MAX_NAMED_LAYERS:
        return [(i, '/'.join(path[-2:] if len(path) > 2 else path[-1:]))
                for i, path in enumerate(paths)]

    min_distance = len(paths) / (width_of(layers) * NAMES_AN_INCH)
    for depth in range(max(map(len, paths)), 0, -1):
        places, num_named = named_modules(paths, depth, min_distance)
        if num_named >= MIN_NAMED_SHARE * len(paths):
            break
    ends = {i: paths[i][:depth] for i in places}
    is_unique = len({end[-1] for end in ends.values()}) == len(ends)
    return [(i, '/'.join(end[-1:] if is_unique else end[-2:])) for i, end in ends.items()]


def named_modules(paths: list[list[str]], depth: int, min_distance: float
                  ) -> tuple[list[int], int]:
    """Returns where modules with a name begin, and how many layers they hold.

    Args:
      paths: of all layers.
      depth: how many names the path of a module has.
      min_distance: between two names, in layers. The largest modules come first.
    """
    begins = starts(paths, depth)
    size_of = {i: stop - i for i, stop in zip(begins, [*begins[1:], len(paths)], strict=True)}
    chosen: list[int] = []
    for i in sorted(begins, key=lambda i: -size_of[i]):
        if all(abs(i - other) >= min_distance for other in chosen):
            chosen.append(i)
    return sorted(chosen), sum(size_of[i] for i in chosen)


def width_of(layers: Sequence[Row]) -> float:
    """Returns the inches of the picture."""
    return min(max(14.0, len(layers) / LAYERS_AN_INCH), 40.0)


def starts(paths: list[list[str]], depth: int) -> list[int]:
    """Returns where the first `depth` names of a path differ from those of the path before."""
    return [i for i in range(len(paths)) if i == 0 or paths[i][:depth] != paths[i - 1][:depth]]


def middles(cells: list[int]) -> list[float]:
    """Returns the middle place of every cell's layers, from the cell of each layer."""
    middle_of_cells = []
    for k in range(cells[-1] + 1):
        first = cells.index(k)
        last = len(cells) - 1 - cells[::-1].index(k)
        middle_of_cells.append((first + last) / 2)
    return middle_of_cells


def colour(k: int) -> str:
    """Returns the colour of cell k. Neighbours have different colours."""
    return COLOURS[k % len(COLOURS)]


if __name__ == '__main__':
    main()
