"""Times pipelined training steps, against the same work on one device.

    python -m lingpipe.tools.bench_pipeline --stack=transformer --layers=8 --dim=256 --heads=4 --seq=64 --batch=32 \\
        --num_cells=2 --num_micro_batches=8 --schedule=1f1b --recompute=none --steps=10 --json

Every measurement is a process of its own, with one intra-op thread and one inter-op thread a device. The pipeline and the same work on one
device (K = 1, same M, one thread) take turns, --rounds times, and medians are compared, since machines are noisy. --checkpoint_every=10
begins a checkpoint with every tenth timed step, whose time counts it, and adds two ratios: of those steps, and of the ones after them, to
the last before the next. --device_ms=10,20 replaces all compute by emulated devices on which a forward takes 10 ms and a backward 20 ms.
"""
from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from lingpipe.tools import parser
from lingpipe.tools.command_line import MAX_CELLS, command, numbers_text

WARMUP_STEPS = 2
MAX_DEVICE_MS = 60_000


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The flags."""
    p = parser('bench_pipeline', __doc__)
    p.add_argument('--stack', choices=['transformer', 'amoebanet', 'delay'], default='transformer')
    p.add_number('--layers', 8, 'L: Transformer layers; normal cells of AmoebaNet-D; emulated layers',
                 least=1, most=10_000)
    p.add_number('--dim', 256, 'channels of the Transformer', least=1)
    p.add_number('--heads', 4, 'attention heads of the Transformer', least=1)
    p.add_number('--seq', 64, 'T of the Transformer', least=1)
    p.add_number('--filters', 32, 'F of AmoebaNet-D', least=1)
    p.add_number('--image', 64, 'height and width of the images of AmoebaNet-D', least=1)
    p.add_number('--batch', 32, 'examples in a mini-batch', least=1)
    p.add_number('--num_cells', 2, 'K', least=1, most=MAX_CELLS)
    p.add_number('--num_micro_batches', 8, 'M', least=1, most=10_000)
    p.add_argument('--schedule', choices=['gpipe', '1f1b'], default='1f1b')
    p.add_argument('--recompute', choices=['none', 'cell', 'layer'], default='none')
    p.add_argument('--dtype', choices=['float32', 'bfloat16'], default='float32', help='of activations')
    p.add_argument('--optimizer', choices=['SGD', 'RMSProp'], default='SGD', help='RMSProp has momentum')
    p.add_numbers('--device_ms', '', 'F,B: emulated devices with these milliseconds a task', count=2,
                  least=0, most=MAX_DEVICE_MS)
    p.add_argument('--graph_optimizer', action='store_true', help="leave TensorFlow's Grappler on")
    p.add_argument('--jit_compile', action='store_true', help='XLA compiles the tasks')
    p.add_number('--steps', 10, 'timed steps; the median counts', least=1)
    p.add_number('--rounds', 1, 'how often pipeline and one device take turns', least=1)
    p.add_number('--threads', 1, 'intra-op threads of one device', least=1, most=MAX_CELLS)
    p.add_number('--inter_op_threads', 0, 'of all devices together; default: one each',
                 least=0, most=MAX_CELLS)
    p.add_number('--workers', 0, 'processes on loopback that have the cells, evenly; 0: this one has them',
                 least=0, most=MAX_CELLS)
    p.add_number('--checkpoint_every', 0, 'timed steps from one checkpoint to the next, 5 or more; 0: none',
                 least=0)
    p.add_argument('--no_baseline', action='store_true', help='measure the pipeline alone, in this process')
    p.add_argument('--losses', action='store_true', help='also print the losses of the first steps')
    p.add_output('--timeline', '', 'save a measured timeline to this path (.png)')
    p.add_argument('--json', action='store_true', help='print one JSON object')
    args = p.parse_args(argv)
    if args.device_ms:
        args.stack = 'delay'
    if args.device_ms and not any(args.device_ms):
        p.error('--device_ms=0,0 leaves nothing to measure; use more than 0 for one of them')
    if args.checkpoint_every and not 5 <= args.checkpoint_every <= args.steps:
        p.error(f'--checkpoint_every={args.checkpoint_every} of --steps={args.steps}; use 5 to {args.steps}')
    if args.workers and args.num_cells % args.workers:
        p.error(f'--num_cells={args.num_cells} do not divide among --workers={args.workers}; use a multiple')
    return args


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Builds and times one configuration in this process, or with its cells on workers that are started for it."""
    from lingpipe.tools.launch_local import Worker, free_addresses
    addresses = free_addresses(args.workers)
    a_worker = [f'--devices=cpu:{args.num_cells // args.workers}'] if args.workers else []
    workers = [Worker(address, a_worker, hangs_after_s=90., out=2) for address in addresses]
    try:
        return _measure(args, addresses)
    finally:
        for worker in workers:
            worker.end()


def _configure(args: argparse.Namespace, addresses: list[str]) -> tuple[str, ...]:
    """Sets this process's devices and threads; the names of the workers' devices, if there are workers."""
    from lingpipe import cluster
    if not addresses:
        cluster.configure(args.num_cells, args.threads, args.inter_op_threads or args.num_cells)
        return ()
    from lingpipe.cluster import devices
    from lingpipe.cluster.client import Connection
    found = devices.find(','.join(addresses), args.num_cells, wait_s=60.)
    cluster.configure(found.num_cpus, args.threads, args.inter_op_threads)
    Connection(found.workers)
    return found.names


def _measure(args: argparse.Namespace, addresses: list[str]) -> dict[str, Any]:
    names = _configure(args, addresses)
    import tensorflow as tf

    from lingpipe.checkpoint import Checkpointer
    from lingpipe.learning import learning_rates, optimizers
    from lingpipe.learning.learner import Learner
    from lingpipe.pipeline.execution.program import Program
    from lingpipe.pipeline.planning.plan import PipelineParams
    from lingpipe.tools import stacks

    network, batch, layers_per_cell = _work(args)
    optimizer = optimizers.SGD.Params() if args.optimizer == 'SGD' else optimizers.RMSProp.Params(momentum=0.9)
    learner = Learner.Params(optimizer=optimizer, learning_rate=learning_rates.Constant.Params(rate=0.003)).instantiate()
    params = PipelineParams(num_cells=args.num_cells, num_micro_batches=args.num_micro_batches, schedule=args.schedule,
                            recompute=args.recompute, use_graph_optimizer=args.graph_optimizer, layers_per_cell=layers_per_cell,
                            devices=names, jit_compile=args.jit_compile)
    tensors = {name: tf.constant(value) for name, value in batch.items()}
    spec = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in batch.items()}
    tf.zeros([1]).numpy()
    _reset_peak()
    before_mb = _status_mb('VmRSS')
    start, cpu_start = time.perf_counter(), time.process_time()
    program = Program(network.instantiate('model'), spec, params, learner)
    if args.stack == 'transformer':
        stacks.assign_transformer_weights(program, args.layers, args.dim)
    program.sent_bytes()  # builds the graph of the step
    build_cpu_s = time.process_time() - cpu_start
    losses, times, cpu_times, faults, first_step_s, first_step_cpu_s = [], [], [], [], 0.0, 0.0
    directory = tempfile.TemporaryDirectory(prefix='bench_pipeline_')
    checkpointer, variables = Checkpointer(directory.name, keep=1), program.variables()
    if args.checkpoint_every:
        checkpointer.prepare(variables)
    for step in range(WARMUP_STEPS + args.steps):
        began, cpu_began, faults_before = time.perf_counter(), time.process_time(), _num_page_faults()
        if args.checkpoint_every and step >= WARMUP_STEPS and (step - WARMUP_STEPS) % args.checkpoint_every == 0:
            checkpointer.begin(step, variables)
        losses.append(float(program.train_step(tensors, step)['loss']))
        checkpointer.check()
        if step == 0:
            first_step_s, first_step_cpu_s = time.perf_counter() - start, time.process_time() - cpu_began
        if step >= WARMUP_STEPS:
            times.append(time.perf_counter() - began)
            cpu_times.append(time.process_time() - cpu_began)
            faults.append(_num_page_faults() - faults_before)
    checkpointer.wait()
    directory.cleanup()
    step_s = statistics.median(times)
    num_weights = program.network.num_weights
    peak_mb = _status_mb('VmHWM')
    num_tasks = sum(len(tasks) for tasks in program.plan.schedule.devices)
    if args.timeline:
        _, timeline = program.timed_step(tensors, len(losses))
        timeline.save_png(args.timeline, f'{args.stack}, K={args.num_cells}, M={args.num_micro_batches}, {args.schedule}')
    return {'step_ms': step_s * 1e3, 'cpu_ms': statistics.median(cpu_times) * 1e3, 'examples_s': args.batch / step_s,
            'new_pages_mb': statistics.median(faults) * resource.getpagesize() / 2 ** 20,
            **_checkpoint_ratios(times, args.checkpoint_every),
            'first_step_s': first_step_s, 'build_cpu_s': build_cpu_s, 'first_step_cpu_s': first_step_cpu_s,
            'num_tasks': num_tasks, 'us_a_task': step_s * 1e6 / num_tasks,
            'num_weights': num_weights, 'start_mb': before_mb, 'peak_mb': peak_mb,
            'bytes_a_weight': (peak_mb - before_mb) * 2 ** 20 / num_weights, 'losses': losses[:4]}


def _checkpoint_ratios(times: list[float], every: int) -> dict[str, float]:
    """Of steps in which a checkpoint begins and of those after them, to the last fifth of those before the next, which the writer has
    left to them: it takes four fifths of that time at most."""
    if not every:
        return {}
    at = [statistics.median(times[offset::every]) for offset in range(2)]
    others = statistics.median(seconds for i, seconds in enumerate(times) if i % every >= every - every // 5)
    return {'checkpoint_step_ratio': at[0] / others, 'next_step_ratio': at[1] / others}


def _work(args: argparse.Namespace) -> tuple[Any, dict[str, Any], tuple[int, ...]]:
    """(network, mini-batch, layers per cell or ()) of the flags."""
    from lingpipe.tools import stacks
    if args.stack == 'delay':
        forward_ms, backward_ms = args.device_ms or (0., 0.)
        k = args.num_cells
        return stacks.delays(k, forward_ms, backward_ms), stacks.delay_batch(args.num_micro_batches), (*[1] * (k - 1), 2)
    if args.stack == 'transformer':
        network = stacks.transformer(args.layers, args.dim, args.heads, args.dtype)
        return network, stacks.transformer_batch(args.batch, args.seq, args.dim), ()
    return stacks.amoebanet(args.layers, args.filters, args.dtype), stacks.image_batch(args.batch, args.image), ()


def compare(args: argparse.Namespace) -> dict[str, Any]:
    """Runs the pipeline and one device in turn, each in a process of its own."""
    from lingpipe.pipeline.planning.simulator import bound
    given = {**vars(args), 'device_ms': numbers_text(args.device_ms)}
    flags = [f'--{name}={value}' for name, value in given.items() if not isinstance(value, bool) and value != '']
    flags += [f'--{name}' for name, value in vars(args).items() if value is True]
    runs: dict[str, list[dict[str, Any]]] = {'pipeline': [], 'one_device': []}
    for _ in range(args.rounds):
        runs['pipeline'].append(measured(flags))
        if not args.device_ms:
            runs['one_device'].append(measured([*flags, '--num_cells=1', '--workers=0', '--timeline=']))
    k, m = args.num_cells, args.num_micro_batches
    result = {**runs['pipeline'][-1], 'step_ms': statistics.median(r['step_ms'] for r in runs['pipeline'])}
    result['examples_s'] = args.batch / result['step_ms'] * 1e3
    if args.device_ms:
        one_ms = k * m * sum(args.device_ms)
    else:
        one_ms = statistics.median(r['step_ms'] for r in runs['one_device'])
        result['one_device_peak_mb'] = runs['one_device'][-1]['peak_mb']
    result.update(one_device_step_ms=one_ms, speedup=one_ms / result['step_ms'], bound=bound(k, m),
                  share_of_bound=one_ms / result['step_ms'] / bound(k, m))
    return result


def measured(flags: list[str]) -> dict[str, Any]:
    """What this tool measures in a process of its own, without the one device beside it.

    Raises:
      ValueError: the process failed, with the last line that it has said.
    """
    bench = [sys.executable, '-m', 'lingpipe.tools.bench_pipeline', *flags, '--no_baseline', '--json']
    done = subprocess.run(bench, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ['it has said nothing']
        reason = lines[-1].removeprefix('bench_pipeline: ')
        raise ValueError(f'{" ".join(bench[1:])} ended with exit code {done.returncode}: {reason}')
    return json.loads(done.stdout)


def _num_page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _status_mb(name: str) -> float:
    with open('/proc/self/status') as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(name))


def _reset_peak() -> None:
    """Sets the peak, VmHWM, to what is resident now; psutil neither reads nor resets it."""
    with open('/proc/self/clear_refs', 'w') as refs:
        refs.write('5')


@command
def main(argv: list[str] | None = None) -> None:
    """Measures, and prints a line for each number or one JSON object."""
    args = parse(argv)
    result = measure(args) if args.no_baseline else compare(args)
    if not args.losses:
        result.pop('losses', None)
    if args.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f'{name:22} {value:,.3f}' if isinstance(value, float) else f'{name:22} {value}')


if __name__ == '__main__':
    main()
