"""Overview: what a person sees of a plan before the first step: the table of cells and what to expect of the schedule."""
from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table

from lingpipe.pipeline.plan import Plan
from lingpipe.pipeline.play import grid

MAX_GRID_SLOTS = 64   # of a schedule that fits on a screen


def overview(plan: Plan, batch_size: int) -> str:
    """Table of cells, totals, and the schedule as a grid when it is small."""
    p = plan.params
    simulation = plan.simulate()
    rows = plan.rows()
    table = Table(box=None, pad_edge=False, header_style='bold')
    numbers = ('layers', 'GFLOPs', 'weights', 'weights MB', 'activations MB', 'peak MB', 'sent MB', 'share')
    for name in ('cell', 'device', 'from', 'to', *numbers):
        table.add_column(name, justify='right' if name in numbers else 'left', overflow='fold')
    for row in rows:
        first, last = row['layers'].split(' .. ')
        table.add_row(str(row['cell']), short_device(row['device']), first, last, str(row['num_layers']),
                      f'{row["gflops_per_micro_batch"]:,.4g}', f'{row["num_weights"]:,}', f'{row["weight_mb"]:,.1f}',
                      f'{row["activation_mb"]:,.1f}', f'{row["peak_mb"]:,.1f}', f'{row["sent_mb_per_micro_batch"]:,.2f}',
                      f'{row["step_share"]:.1%}')
    weights = sum(row['num_weights'] for row in rows)
    of_replicas = f', {p.num_replicas} replicas of them (the first is shown)' if p.num_replicas > 1 else ''
    lines = [
        f'{weights:,} parameters in {p.num_cells} cells{of_replicas}; {p.num_micro_batches} micro-batches of '
        f'{batch_size // (p.num_micro_batches * p.num_replicas)} examples; schedule {p.schedule}, recompute {p.recompute}. GFLOPs, '
        f'activations and sent are of one forward micro-batch, peak is predicted for the step.',
        f'predicted bubble {simulation.bubble_share:.1%}, balance {plan.balance:.1%} (mean cell / slowest cell)',
        *[f'replica {r} on {", ".join(short_device(cell.device) for cell in cells)}'
          for r, cells in enumerate(plan.replicas) if p.devices and r],
    ]
    text = _render(table) + '\n'.join(lines) + '\n'
    if p.num_cells > 1:
        drawn = grid(plan.schedule, edges=plan.edges)
        if max(len(line.split()) for line in drawn.split('\n')) <= MAX_GRID_SLOTS:
            text += '\n' + drawn + '\n'
    return text


def short_device(name: str) -> str:
    """'/job:localhost/replica:0/task:0/device:CPU:1' as 'CPU:1'; names of other machines stay whole."""
    return name.removeprefix('/job:localhost/replica:0/task:0').removeprefix('/device:')


def _render(table: Table) -> str:
    """The same text on a terminal and in a file: wide enough for every column."""
    out = io.StringIO()
    Console(file=out, width=200, no_color=True, highlight=False).print(table)
    return '\n'.join(line.rstrip() for line in out.getvalue().split('\n'))
