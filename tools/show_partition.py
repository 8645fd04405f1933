"""Prints how an experiment is cut into cells, layer by layer, without training; --measure times every layer first.

    python -m lingpipe.tools.show_partition --model=image.digits.AmoebaNet --num_cells=4
    python -m lingpipe.tools.show_partition --model=image.digits.AmoebaNet --num_cells=4 --measure

--measure also prints the flags --set pipeline.layer_seconds=... and --set pipeline.layer_backward_seconds=... that make the trainer use
the measured seconds as costs. The same as a picture: lingpipe.tools.plot_partition.
"""
from __future__ import annotations

import json
from typing import Any

from lingpipe.tools import parser, partition
from lingpipe.tools.command_line import command


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags and prints."""
    p = parser('show_partition', __doc__)
    partition.add_flags(p)
    args = p.parse_args(argv)
    params, plan = partition.planned(args)
    found = partition.rows(plan)
    print(json.dumps(found) if args.json else text(plan, found['layers'], params.train_input.batch_size, args.measure))


def text(plan: Any, layers: list[dict[str, Any]], batch_size: int, is_measured: bool) -> str:
    """A line for every layer, under its cell, and the overview that the trainer prints."""
    from lingpipe.training.reporting.plan_table import overview

    lines: list[str] = []
    for i, row in enumerate(layers):
        if i == 0 or row['cell'] != layers[i - 1]['cell']:
            lines.append(f'-- cell {row["cell"]}')
        time = f'{row["ms"]:8.2f} ms' if 'ms' in row else ''
        lines.append(f'   {row["layer"]:60} {row["kind"]:22} {row["gflops"]:9.4f} GFLOP {row["num_weights"]:12,} weights '
                     f'{row["residual_mb"]:8.2f} MB {time}   reads {", ".join(row["reads"])}')
    made = '\n'.join(lines) + '\n\n' + overview(plan, batch_size)
    if is_measured:
        seconds, backward = (', '.join(f'{s:.6g}' for s in of_layers)
                             for of_layers in (plan.params.layer_seconds, plan.params.layer_backward_seconds))
        made += f'\n--set pipeline.layer_seconds=[{seconds}] --set pipeline.layer_backward_seconds=[{backward}]\n'
    return made


if __name__ == '__main__':
    main()
