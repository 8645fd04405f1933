"""Measures a step over slow links, beside what the simulator predicts: emulated devices, joined by emulated links.

    python -m lingpipe.tools.bench_link --num_cells=4 --num_micro_batches=16 --device_ms=20,40 --transfer_kb=64 --links_mb_s=inf,8,4,2,1,0.5

Every value and gradient that goes to another device arrives bytes / bandwidth after the link is free: each pair of devices has a link that
carries one tensor at a time each way, while the devices compute on. All delays are sleeps, so that few cores are enough for many devices.
"""
from __future__ import annotations

import argparse
import json
import math
import time
from typing import Any

from lingpipe.tools import parser
from lingpipe.tools.bench_pipeline import MAX_DEVICE_MS
from lingpipe.tools.command_line import MAX_CELLS, command

WARMUP_STEPS = 2


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags, measures and prints."""
    p = parser('bench_link', __doc__)
    p.add_number('--num_cells', 4, 'K', least=1, most=MAX_CELLS)
    p.add_number('--num_micro_batches', 16, 'M', least=1, most=10_000)
    p.add_argument('--schedule', choices=['gpipe', '1f1b'], default='gpipe')
    p.add_numbers('--device_ms', '20,40', 'F,B: milliseconds of a forward and a backward of a micro-batch', count=2,
                  least=0, most=MAX_DEVICE_MS)
    p.add_number('--transfer_kb', 64, 'of 1024 bytes: what a micro-batch sends from cell to cell, each way',
                 least=1, most=1 << 20)
    p.add_numbers('--links_mb_s', 'inf,8,4,2,1,0.5', 'of 10^6 bytes: bandwidths, inf for a link that takes no time',
                  least=1e-6, is_finite=False)
    p.add_number('--steps', 5, 'timed steps; the fastest counts: what disturbs a sleep makes it longer', least=1)
    p.add_argument('--json', action='store_true', help='print one JSON object')
    args = p.parse_args(argv)
    if not args.device_ms or not args.links_mb_s:
        p.error('--device_ms and --links_mb_s are lists of numbers; write them, or leave the flags out')
    if not any(args.device_ms):
        p.error('--device_ms=0,0 leaves nothing to measure; use more than 0 for one of them')
    forward_ms, backward_ms = args.device_ms
    links = [mb * 1e6 for mb in args.links_mb_s]
    from lingpipe import cluster
    k = args.num_cells
    cluster.configure(k, 1, k + 2 * (k - 1))   # a thread for each device and each way of each link
    rows = [measure(args, forward_ms, backward_ms, link) for link in links]
    if args.json:
        print(json.dumps({'num_cells': k, 'num_micro_batches': args.num_micro_batches, 'links': rows}))
        return
    print(f'K={k}, M={args.num_micro_batches}, {args.schedule}, F {forward_ms:g} ms, B {backward_ms:g} ms, '
          f'{args.transfer_kb} KB a transfer; sleeping devices and links')
    print(f'{"link MB/s":>10}{"ms a transfer":>15}{"measured ms":>13}{"simulated ms":>14}{"measured / simulated":>22}')
    for row in rows:
        print(f'{row["link_mb_s"] or math.inf:10g}{row["transfer_ms"]:15.1f}{row["step_ms"]:13.1f}{row["simulated_ms"]:14.1f}'
              f'{row["step_ms"] / row["simulated_ms"]:22.3f}')


def measure(args: argparse.Namespace, forward_ms: float, backward_ms: float, link_bytes_s: float) -> dict[str, Any]:
    """Times steps with links of one bandwidth, and simulates one."""
    import tensorflow as tf

    from lingpipe.learning import learning_rates, optimizers
    from lingpipe.learning.learner import Learner
    from lingpipe.pipeline.planning.plan import PipelineParams
    from lingpipe.pipeline.planning.simulator import simulate
    from lingpipe.tools import stacks
    from lingpipe.tools.slow_link import SlowProgram

    k, m = args.num_cells, args.num_micro_batches
    batch = {name: tf.constant(value) for name, value in stacks.delay_batch(m, args.transfer_kb * 256).items()}
    params = PipelineParams(num_cells=k, num_micro_batches=m, schedule=args.schedule, recompute='none', layers_per_cell=(*[1] * (k - 1), 2))
    learner = Learner.Params(optimizer=optimizers.SGD.Params(), learning_rate=learning_rates.Constant.Params(rate=0.)).instantiate()
    network = stacks.delays(k, forward_ms, backward_ms).instantiate('model')
    spec = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in batch.items()}
    program = SlowProgram(network, spec, params, learner, link_bytes_s=link_bytes_s)
    times = []
    for step in range(WARMUP_STEPS + args.steps):
        start = time.perf_counter()
        program.train_step(batch, step)['loss'].numpy()
        times.append(time.perf_counter() - start)
    transfer_ms = args.transfer_kb * 1024 / link_bytes_s * 1e3
    simulation = simulate(program.plan.schedule, [forward_ms] * k, [backward_ms] * k, edges=program.plan.edges, link_s=transfer_ms)
    return {'link_mb_s': link_bytes_s / 1e6 if math.isfinite(link_bytes_s) else None, 'transfer_ms': transfer_ms,
            'step_ms': min(times[WARMUP_STEPS:]) * 1e3, 'simulated_ms': simulation.step_s}


if __name__ == '__main__':
    main()
