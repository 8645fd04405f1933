"""Measures a step over slow links, beside what the simulator predicts.

    python -m lingpipe.tools.bench_link --num_cells=4 --num_micro_batches=16 --device_ms=20,40 \\
        --transfer_kb=64 --links_mb_s=inf,8,4,2,1,0.5

Devices and links are emulated. Each pair of devices has a link that carries one tensor at a time
each way, while the devices compute on. A value or gradient arrives bytes / bandwidth after the link
is free. All delays are sleeps, so that few cores are enough for many devices.
"""
from __future__ import annotations

import argparse
import json
import math
import time
from typing import TYPE_CHECKING, Any

from lingpipe.pipeline.planning.layout import num_devices_for
from lingpipe.tools import parser
from lingpipe.tools.bench_pipeline import MAX_DEVICE_MS, NAMED
from lingpipe.tools.command_line import MAX_CELLS, command

if TYPE_CHECKING:
    import tensorflow as tf

    from lingpipe.tools.slow_link import SlowProgram

WARMUP_STEPS = 2


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags, measures and prints."""
    args = parse(argv)
    from lingpipe import cluster
    k = args.num_cells
    num_devices = num_devices_for(args.schedule, k)
    # There is a thread for each device and for each way of each link.
    cluster.configure(num_devices, 1, num_devices + 2 * (k - 1))
    rows = [measure(args, link_mb_s * 1e6) for link_mb_s in args.links_mb_s]
    if args.json:
        print(json.dumps({'num_cells': k, 'num_micro_batches': args.num_micro_batches,
                          'links': rows}))
    else:
        print(text(args, rows))


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Returns the flags."""
    p = parser('bench_link', __doc__)
    p.add_number('--num_cells', 4, 'K', least=1, most=MAX_CELLS)
    p.add_number('--num_micro_batches', 16, 'M', least=1, most=10_000)
    p.add_argument('--schedule', choices=NAMED, default='gpipe',
                   help='with two cells a device, K / 2 devices')
    p.add_numbers('--device_ms', '20,40',
                  'F,B: milliseconds of a forward and a backward of a cell', count=2,
                  least=0, most=MAX_DEVICE_MS)
    p.add_number('--transfer_kb', 64,
                 'of 1024 bytes: what a micro-batch sends from cell to cell, each way',
                 least=1, most=1 << 20)
    p.add_numbers('--links_mb_s', 'inf,8,4,2,1,0.5',
                  'of 10^6 bytes: bandwidths, inf for a link that takes no time',
                  least=1e-6, is_finite=False)
    p.add_number('--steps', 5,
                 'timed steps; the fastest counts: what disturbs a sleep makes it longer', least=1)
    p.add_argument('--json', action='store_true', help='print one JSON object')
    args = p.parse_args(argv)
    if not args.device_ms or not args.links_mb_s:
        p.error('--device_ms and --links_mb_s are lists of numbers; write them, or leave the flags '
                'out')
    if not any(args.device_ms):
        p.error('--device_ms=0,0 leaves nothing to measure; use more than 0 for one of them')
    return args


def text(args: argparse.Namespace, rows: list[dict[str, Any]]) -> str:
    """Returns the table."""
    forward_ms, backward_ms = args.device_ms
    lines = [
        f'K={args.num_cells}, M={args.num_micro_batches}, {args.schedule}, F {forward_ms:g} ms, '
        f'B {backward_ms:g} ms, {args.transfer_kb} KB a transfer; sleeping devices and links',
        f'{"link MB/s":>10}{"ms a transfer":>15}{"measured ms":>13}{"simulated ms":>14}'
        f'{"measured / simulated":>22}']
    for row in rows:
        lines.append(f'{row["link_mb_s"] or math.inf:10g}{row["transfer_ms"]:15.1f}'
                     f'{row["step_ms"]:13.1f}{row["simulated_ms"]:14.1f}'
                     f'{row["step_ms"] / row["simulated_ms"]:22.3f}')
    return '\n'.join(lines)


def measure(args: argparse.Namespace, link_bytes_s: float) -> dict[str, Any]:
    """Times steps with links of one bandwidth, and simulates one step."""
    import tensorflow as tf

    from lingpipe.pipeline.planning.simulator import simulate
    from lingpipe.tools import stacks

    arrays = stacks.delay_batch(args.num_micro_batches, args.transfer_kb * 256)
    batch = {name: tf.constant(value) for name, value in arrays.items()}
    program = slow_program(args, batch, link_bytes_s)
    times_s = []
    for step in range(WARMUP_STEPS + args.steps):
        start_s = time.perf_counter()
        program.train_step(batch, step)['loss'].numpy()
        times_s.append(time.perf_counter() - start_s)

    forward_ms, backward_ms = args.device_ms
    transfer_ms = args.transfer_kb * 1024 / link_bytes_s * 1e3
    # The first cell passes no gradient on, so that W is all of its backward.
    weight_ms = [backward_ms] + [backward_ms / 2] * (args.num_cells - 1)
    simulation = simulate(program.plan.schedule, [forward_ms] * args.num_cells,
                          [backward_ms] * args.num_cells, weight_s=weight_ms,
                          edges=program.plan.edges,
                          link_s=transfer_ms)   # all of its times are milliseconds here
    return {'link_mb_s': link_bytes_s / 1e6 if math.isfinite(link_bytes_s) else None,
            'transfer_ms': transfer_ms,
            'step_ms': min(times_s[WARMUP_STEPS:]) * 1e3,
            'simulated_ms': simulation.step_s}


def slow_program(args: argparse.Namespace, batch: dict[str, tf.Tensor], link_bytes_s: float
                 ) -> SlowProgram:
    """Returns the emulated devices and links; the last cell has the loss too."""
    import tensorflow as tf

    from lingpipe.learning import learning_rates, optimizers
    from lingpipe.learning.learner import Learner
    from lingpipe.pipeline.planning.pipeline_params import PipelineParams
    from lingpipe.tools import emulation, stacks
    from lingpipe.tools.slow_link import SlowProgram

    k = args.num_cells
    forward_ms, backward_ms = args.device_ms
    params = emulation.with_cell_seconds(
        PipelineParams(num_cells=k, num_micro_batches=args.num_micro_batches,
                       schedule=args.schedule, recompute='none'),
        [(forward_ms / 1e3, backward_ms / 1e3)] * k)
    learner = Learner.Params(optimizer=optimizers.SGD.Params(),
                             learning_rate=learning_rates.Constant.Params(rate=0.)).instantiate()
    network = stacks.delays(k, forward_ms, backward_ms, params.layout).instantiate('model')
    spec = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in batch.items()}
    return SlowProgram(network, spec, params, learner, link_bytes_s=link_bytes_s)


if __name__ == '__main__':
    main()
