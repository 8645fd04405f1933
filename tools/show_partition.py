"""Prints how an experiment is cut into cells, layer by layer, without training; --measure times every layer first.

    python -m tools.show_partition --model=image.digits.AmoebaNet --num_cells=4
    python -m tools.show_partition --model=image.digits.AmoebaNet --num_cells=4 --measure

--measure also prints the line --set pipeline.layer_seconds=... that makes the trainer use the measured seconds as costs.
"""
from __future__ import annotations

import argparse
import json
import os
from typing import Any

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')


def main(argv: list[str] | None = None) -> None:
    """Parses the flags and prints."""
    p = argparse.ArgumentParser(prog='python -m tools.show_partition', description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--model', required=True, help='name of an experiment')
    p.add_argument('--num_cells', type=int, default=0, help="K; default: the experiment's")
    p.add_argument('--set', action='append', default=[], help='path=value, as for the trainer')
    p.add_argument('--measure', action='store_true', help='time each layer on the first CPU device and cut by seconds')
    p.add_argument('--json', action='store_true', help='print one JSON object')
    args = p.parse_args(argv)
    try:
        result = partition(args)
    except ValueError as e:
        raise SystemExit(f'show_partition: {e}') from e
    if args.json:
        print(json.dumps({name: value for name, value in result.items() if name != 'text'}))
    else:
        print(result['text'])


def partition(args: argparse.Namespace) -> dict[str, Any]:
    """The plan of the flags: rows of layers and of cells, balance, predicted bubble, and all of it as text."""
    from lingpipe import registry
    from lingpipe.overview import overview

    params = registry.get(args.model)
    for setting in args.set:
        path, _, value = setting.partition('=')
        params.override(path, value)
    if args.num_cells:
        params.pipeline.num_cells = args.num_cells
    plan = params.instantiate().make_plan()
    if args.measure:
        from lingpipe.pipeline.profile import layer_seconds
        params.pipeline.layer_seconds = tuple(layer_seconds(plan.elements, 'CPU:0'))
        plan = params.instantiate().make_plan()
    seconds = params.pipeline.layer_seconds
    layers = [{'cell': cell.index, 'layer': e.layer.path, 'kind': type(e.layer).__name__, 'gflops': e.cost.flops / 1e9,
               'num_weights': e.cost.num_weights, 'activation_mb': e.cost.activation_bytes / 1e6,
               'reads': sorted({v.name for v in e.reads.values()}), **({'ms': seconds[e.index] * 1e3} if seconds else {})}
              for cell in plan.cells for e in cell.elements]
    lines: list[str] = []
    for i, row in enumerate(layers):
        if i == 0 or row['cell'] != layers[i - 1]['cell']:
            lines.append(f'-- cell {row["cell"]}')
        time = f'{row["ms"]:8.2f} ms' if seconds else ''
        lines.append(f'   {row["layer"]:60} {row["kind"]:22} {row["gflops"]:9.4f} GFLOP {row["num_weights"]:12,} weights '
                     f'{row["activation_mb"]:8.2f} MB {time}   reads {", ".join(row["reads"])}')
    text = '\n'.join(lines) + '\n\n' + overview(plan, params.train_input.batch_size)
    if args.measure:
        text += f'\n--set pipeline.layer_seconds=[{", ".join(f"{s:.6g}" for s in seconds)}]\n'
    return {'layers': layers, 'cells': plan.rows(), 'balance': plan.balance, 'bubble_share': plan.simulate().bubble_share, 'text': text}


if __name__ == '__main__':
    main()
