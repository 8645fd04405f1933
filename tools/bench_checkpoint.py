"""Measures how long checkpoints of workers take, and what they cost the trainer.

    python -m lingpipe.tools.bench_checkpoint --sizes_gb=0.1,0.5,1 --workers=2

The weights are variables of workers on this machine, 4 MB each. Each size is saved and restored in
two ways: by the workers, which see the directory, and by the trainer, as it does when they do not.
Numbers are of one save or restore, without pauses for training. The trainer's memory is its peak
above what it had before. Bytes received are those of the loopback device, on which nothing else
should happen meanwhile: other processes of the machine count too.
"""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from lingpipe.tools import parser
from lingpipe.tools.command_line import command
from lingpipe.tools.pipeline_benchmark import reset_peak, status_mb

if TYPE_CHECKING:
    import tensorflow as tf

    from lingpipe.checkpoint import Checkpointer

HEADING = f'{"GB":>5} {"files by":8} {"what":8}{"s":>8}{"trainer MB":>12}{"received MB":>13}'
_WEIGHTS = 1_000_000   # of a variable

Row = dict[str, float | str]


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags, measures and prints."""
    p = parser('bench_checkpoint', __doc__)
    p.add_numbers('--sizes_gb', '0.1,0.5,1', 'sizes of the weights of a checkpoint, in 10^9 bytes',
                  least=0.001, most=1000)
    p.add_number('--workers', 2, 'processes on loopback that have the weights, evenly', least=1,
                 most=64)
    p.add_argument('--directory', default='', help='where checkpoints are written, and removed; '
                   'default: a temporary directory')
    p.add_argument('--json', action='store_true', help='print one JSON object')
    args = p.parse_args(argv)
    if args.directory and not os.path.isdir(args.directory):
        p.error(f'--directory={args.directory} is no folder; name one that is there')
    rows = []
    if not args.json:
        print(HEADING)
    for row in measure(args):
        rows.append(row)
        if not args.json:
            print(f'{row["gb"]:5} {row["by"]:8} {row["what"]:8}{row["seconds"]:8.2f}'
                  f'{row["peak_mb"]:12.1f}{row["received_mb"]:13.2f}', flush=True)
    if args.json:
        print(json.dumps({'workers': args.workers, 'rows': rows}))


def measure(args: argparse.Namespace) -> Iterator[Row]:
    """Starts workers, and yields the rows of all sizes."""
    from lingpipe.tools.launch_local import Worker, free_addresses
    addresses = free_addresses(args.workers)
    workers = [Worker(address, ['--devices=cpu:1'], hangs_after_s=90., out=2)
               for address in addresses]
    try:
        from lingpipe import cluster
        from lingpipe.cluster import devices
        from lingpipe.cluster.client import Connection
        found = devices.find_all(','.join(addresses), wait_s=120.)
        cluster.configure(found.num_cpus)
        Connection(found.workers, wait_s=120.)
        for size_gb in args.sizes_gb:
            with tempfile.TemporaryDirectory(dir=args.directory or None) as directory:
                yield from _rows(size_gb, found.names, directory)
    finally:
        for worker in workers:
            worker.end()


def _rows(size_gb: float, devices: tuple[str, ...], directory: str) -> Iterator[Row]:
    """Yields the rows of one size."""
    from lingpipe.checkpoint import Checkpointer
    variables = _variables(size_gb, devices)
    # The path through /proc/self is another one for the workers.
    descriptor = os.open(directory, os.O_RDONLY)
    hidden = f'/proc/self/fd/{descriptor}/trainer'
    for by, path in (('workers', f'{directory}/workers'), ('trainer', hidden)):
        checkpointer = Checkpointer(path)
        for what, call in _calls(checkpointer, variables):
            with contextlib.suppress(OSError):   # A system may not allow it: then the peak is less.
                reset_peak()
            before_mb, before_bytes, start_s = status_mb('VmRSS'), _received(), time.perf_counter()
            call()
            yield {'gb': size_gb, 'by': by, 'what': what,
                   'seconds': time.perf_counter() - start_s,
                   'peak_mb': status_mb('VmHWM') - before_mb,
                   'received_mb': (_received() - before_bytes) / 1e6}
    os.close(descriptor)


def _variables(size_gb: float, devices: tuple[str, ...]) -> dict[str, tf.Variable]:
    """Returns variables of 4 MB, those of each worker one after another."""
    import tensorflow as tf
    num_variables = max(1, round(size_gb * 1e9 / (4 * _WEIGHTS)))
    variables = {}
    for number in range(num_variables):
        with tf.device(devices[number * len(devices) // num_variables]):
            variables[f'weights/model/layer_{number}/kernel'] = tf.Variable(
                tf.random.stateless_uniform([_WEIGHTS], [1, number]))
    return variables


def _calls(checkpointer: Checkpointer, variables: dict[str, tf.Variable]
           ) -> list[tuple[str, Callable[[], object]]]:
    """Returns what is measured; the first save, which traces graphs, does not count."""
    checkpointer.save(1, variables)
    return [('save', lambda: checkpointer.save(2, variables)),
            ('restore', lambda: checkpointer.restore(variables))]


def _received() -> int:
    """Returns the bytes that the loopback device has received."""
    with open('/proc/net/dev', encoding='utf-8') as file:
        return next(int(line.split()[1]) for line in file if line.strip().startswith('lo:'))


if __name__ == '__main__':
    main()
