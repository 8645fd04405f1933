"""Plan table: the cells of a plan and the forecast of its schedule, printed before the first step.

Everything except long paths of layers fits into 80 columns.
"""
from __future__ import annotations

import io
import re
from collections.abc import Collection, Sequence

from rich.console import Console
from rich.table import Table

from lingpipe.pipeline.planning.drawing import grid
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.wording.counts import counted

MAX_GRID_SLOTS = 64  # in a row of a schedule that still fits on a screen


def overview(plan: Plan, batch_size: int) -> str:
    """Returns the table of cells, their layers, the totals and, if it is small, the schedule."""
    p = plan.params
    simulation = plan.simulate()
    rows = plan.rows()

    table = table_of(['cell', 'device', 'layers', 'GFLOPs', 'params', 'state MB', 'held MB',
                      'peak MB', 'sent MB', 'share'], left={'device'})
    for row in rows:
        table.add_row(
            str(row['cell']), short_device(row['device']), str(row['num_layers']),
            f'{row["gflops_per_micro_batch"]:,.4g}', short_number(row['num_weights']),
            f'{row["state_mb"]:,.1f}', f'{row["held_mb_per_micro_batch"]:,.1f}',
            f'{row["peak_mb"]:,.1f}', f'{row["sent_mb_per_micro_batch"]:,.2f}',
            f'{row["step_share"]:.1%}')

    of_replicas = (f', {p.num_replicas} replicas of them (the first is shown)'
                   if p.num_replicas > 1 else '')
    lines = [
        'state: weights, gradients and optimizer slots. GFLOPs, held (between forward',
        'and backward) and sent: of one micro-batch. peak: predicted for the step.',
        '',
        *[f'cell {row["cell"]}: {row["layers"]}' for row in rows],
        '',
        f'{counted(sum(row["num_weights"] for row in rows), "parameter")} in '
        f'{counted(p.num_cells, "cell")}{of_replicas}',
        f'{counted(p.num_micro_batches, "micro-batch")} of '
        f'{counted(batch_size // (p.num_micro_batches * p.num_replicas), "example")}; '
        f'schedule {p.schedule}, recompute {_modes(p.modes)}',
        f'predicted bubble {simulation.bubble_share:.1%}, '
        f'balance {plan.forecast.balance:.1%} (mean cell / slowest cell)',
        *[f'replica {r} on {", ".join(short_device(cell.device) for cell in cells)}'
          for r, cells in enumerate(plan.replicas) if p.devices and r],
    ]
    text = rendered(table) + '\n'.join(lines) + '\n'

    if p.num_cells > 1:
        drawn = grid(plan.schedule, edges=plan.edges)
        if max(len(line.split()) for line in drawn.split('\n')) <= MAX_GRID_SLOTS:
            text += '\n' + drawn + '\n'
    return text


def one_line(plan: Plan) -> str:
    """Says which plan it is, of those that one experiment can have."""
    p = plan.params
    return (f'cells of {", ".join(map(str, plan.partition.layers_per_cell))} layers, '
            f'{counted(p.num_replicas, "replica")}, {counted(p.num_micro_batches, "micro-batch")}, '
            f'schedule {p.schedule}, recompute {_modes(p.modes)}')


def short_device(name: str) -> str:
    """Returns 'CPU:1' for a device of this process, 'w2 GPU:0' for one of worker 2.

    Any other name is returned unchanged.
    """
    match = re.fullmatch(r'(?:/job:(\w+))?(?:/replica:0)?(?:/task:(\d+))?/device:(\w+:\d+)', name)
    if match is None or match[1] not in (None, 'localhost', 'worker'):
        return name
    return f'w{match[2] or 0} {match[3]}' if match[1] == 'worker' else match[3]


def short_number(number: int) -> str:
    """Formats a number with three digits and a prefix: '721', '12.3 M', '1.84 G'."""
    for size, prefix in ((1e12, 'T'), (1e9, 'G'), (1e6, 'M'), (1e3, 'k')):
        if number >= 0.9995 * size:
            return f'{number / size:.3g} {prefix}'
    return str(number)


def _modes(modes: Sequence[str]) -> str:
    """Modes of recomputation as the flag takes them: one word if all are alike."""
    return modes[0] if len(set(modes)) == 1 else ','.join(modes)


def table_of(columns: Sequence[str], left: Collection[str]) -> Table:
    """A table without rows; numbers stand at the right, and the columns `left` at the left."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style='bold')
    for name in columns:
        table.add_column(name, justify='left' if name in left else 'right', no_wrap=True)
    return table


def rendered(table: Table) -> str:
    """Renders a table as wide as its columns, so that a terminal and a file get the same text."""
    out = io.StringIO()
    Console(file=out, width=200, no_color=True, highlight=False, force_jupyter=False).print(table)
    return '\n'.join(line.rstrip() for line in out.getvalue().split('\n'))
