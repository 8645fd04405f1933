"""Prints how an experiment is cut into cells, layer by layer, without training.

    python -m lingpipe.tools.show_partition --model=image.digits.AmoebaNet --num_cells=4
    python -m lingpipe.tools.show_partition --model=image.digits.AmoebaNet --num_cells=4 --measure

--measure times every layer first. It also prints the flags --set pipeline.layer_seconds=..., --set
pipeline.layer_backward_seconds=... and --set pipeline.memory_bytes_per_s=..., with which the
trainer uses the measured seconds as costs. lingpipe.tools.plot_partition draws the same.
"""
from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lingpipe.tools import parser, partition
from lingpipe.tools.command_line import command

if TYPE_CHECKING:
    from lingpipe.pipeline.planning.plan import Plan


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags and prints."""
    p = parser('show_partition', __doc__)
    partition.add_flags(p)
    args = p.parse_args(argv)
    params, plan = partition.planned(args)
    rows = partition.rows(plan)
    if args.json:
        print(json.dumps(rows))
    else:
        print(text(plan, rows['layers'], params.train_input.batch_size, args.measure))


def text(plan: Plan, layers: list[dict[str, Any]], batch_size: int, is_measured: bool) -> str:
    """Returns a line for every layer, under its cell, and the overview that the trainer prints."""
    from lingpipe.training.reporting.plan_table import overview

    lines: list[str] = []
    for i, row in enumerate(layers):
        if i == 0 or row['cell'] != layers[i - 1]['cell']:
            lines.append(f'-- cell {row["cell"]}')
        time = f'{row["ms"]:8.2f} ms' if 'ms' in row else ''
        lines.append(f'   {row["layer"]:60} {row["kind"]:22} {row["gflops"]:9.4f} GFLOP '
                     f'{row["num_weights"]:12,} weights {row["residual_mb"]:8.2f} MB {time}   '
                     f'reads {", ".join(row["reads"])}')

    page = '\n'.join(lines) + '\n\n' + overview(plan, batch_size)
    if is_measured:
        values = {'layer_seconds': _numbers(plan.params.layer_seconds),
                  'layer_backward_seconds': _numbers(plan.params.layer_backward_seconds),
                  'memory_bytes_per_s': f'{plan.params.memory_bytes_per_s:.6g}'}
        flags = [f'--set={shlex.quote(f"pipeline.{name}={value}")}'
                 for name, value in values.items()]
        page += f'\n{" ".join(flags)}\n'
    return page


def _numbers(seconds: Sequence[float]) -> str:
    return f'[{",".join(f"{s:.6g}" for s in seconds)}]'


if __name__ == '__main__':
    main()
