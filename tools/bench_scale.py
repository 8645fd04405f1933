"""Measures what it costs to build and to start pipelines of many cells and micro-batches.

    python -m lingpipe.tools.bench_scale --sizes=8x32,16x64,32x128,64x256

A size is K x M; where a schedule has two cells a device, K / 2 devices. They are emulated, and
their cells do nothing. Each size is a process of its own (lingpipe.tools.bench_pipeline
--stack=delay). Times are CPU time, since machines are shared.
The first step includes what TensorFlow does to a graph before its first run. All devices share
--inter_op_threads threads: with one thread each, 128 threads wake each other up on a few cores, and
a step of 128x16 takes three times as long. 128x512 takes minutes and 8 GB.
"""
from __future__ import annotations

import argparse
import json
import re
from typing import Any

from lingpipe.tools import parser
from lingpipe.tools.bench_pipeline import NAMED, measured
from lingpipe.tools.command_line import MAX_CELLS, Parser, command

HEADING = (f'{"K":>4}{"M":>5}{"tasks":>9}{"build s":>9}{"first step s":>14}{"step s":>8}   '
           f'a task: {"build ms":>8}{"first ms":>10}{"step us":>9}{"KB":>7}{"peak MB":>11}')


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags, measures and prints."""
    p = parser('bench_scale', __doc__)
    p.add_argument('--sizes', default='8x32,16x64,32x128', help='KxM, with commas between them')
    p.add_argument('--schedule', choices=NAMED, default='1f1b')
    p.add_number('--inter_op_threads', 4, 'of all devices together; 0: one each', least=0,
                 most=MAX_CELLS)
    p.add_number('--steps', 3, 'timed steps after the first ones; the median counts', least=1)
    p.add_argument('--json', action='store_true', help='print one JSON object')
    args = p.parse_args(argv)
    sizes = [_size(text, p) for text in args.sizes.split(',')]

    rows = []
    if not args.json:
        print(HEADING)
    for num_cells, num_micro_batches in sizes:
        row = measure(num_cells, num_micro_batches, args)
        rows.append(row)
        if not args.json:
            print(row_text(row), flush=True)
    if args.json:
        print(json.dumps({'schedule': args.schedule, 'sizes': rows}))


def _size(text: str, p: Parser) -> tuple[int, int]:
    """Returns (K, M) of 'KxM'."""
    match = re.fullmatch(r'([1-9]\d{0,5})x([1-9]\d{0,5})', text)
    if not match or int(match[1]) > MAX_CELLS:
        p.error(f'--sizes has {text!r}; write KxM, as 8x32,16x64, with 1 to {MAX_CELLS} cells')
    return int(match[1]), int(match[2])


def measure(num_cells: int, num_micro_batches: int, args: argparse.Namespace) -> dict[str, Any]:
    """Builds and runs one size in a process of its own.

    memory_mb is the peak above the memory of TensorFlow alone.
    """
    result = measured(['--stack=delay', f'--num_cells={num_cells}', f'--batch={num_micro_batches}',
                       f'--num_micro_batches={num_micro_batches}', f'--schedule={args.schedule}',
                       f'--steps={args.steps}', f'--inter_op_threads={args.inter_op_threads}'])
    return {'num_cells': num_cells,
            'num_micro_batches': num_micro_batches,
            'num_tasks': result['num_tasks'],
            'build_cpu_s': result['build_cpu_s'],
            'first_step_cpu_s': result['first_step_cpu_s'],
            'step_cpu_s': result['cpu_ms'] / 1e3,
            'memory_mb': result['peak_mb'] - result['start_mb'],
            'peak_mb': result['peak_mb']}


def row_text(row: dict[str, Any]) -> str:
    """Returns the line of a size."""
    n = row['num_tasks']
    build_s = row['build_cpu_s']
    first_s = row['first_step_cpu_s']
    step_s = row['step_cpu_s']
    return (f'{row["num_cells"]:4}{row["num_micro_batches"]:5}{n:9,}{build_s:9.2f}{first_s:14.2f}'
            f'{step_s:8.2f}   {"":8}{build_s / n * 1e3:8.2f}{first_s / n * 1e3:10.2f}'
            f'{step_s / n * 1e6:9.0f}{row["memory_mb"] / n * 1024:7.0f}{row["peak_mb"]:11.0f}')


if __name__ == '__main__':
    main()
