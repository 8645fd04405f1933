"""Times pipelined training steps, against the same work on one device.

    python -m lingpipe.tools.bench_pipeline --stack=transformer --layers=8 --dim=256 --heads=4 \\
        --seq=64 --batch=32 --num_cells=2 --num_micro_batches=8 --schedule=1f1b \\
        --recompute=none --steps=10 --json

Every measurement is a process of its own, with one intra-op thread and one inter-op thread for
each device. The pipeline and the same work on one device (K = 1, same M, one thread) take turns,
--rounds times, and medians are compared, since machines are noisy.

--checkpoint_every=10 begins a checkpoint with every tenth timed step, and counts it in the time of
the step. Two ratios are added: the time of those steps, and of the steps after them, over the time
of the last steps before the next checkpoint. --breakdown adds as many steps whose tasks are timed,
and says where the devices spend the time.

--device_ms=10,20 replaces all compute by emulated devices, on each of which the forwards of a
micro-batch take 10 ms and the backwards 20 ms, half of them for the gradients of weights. They
sleep, so any number of them fits on a machine; if other work keeps it busy, `chrt --fifo 1` wakes
them in time. --emulate does so with the measured seconds of a real network's layers. For eight
devices with two cells each:

    python -m lingpipe.tools.bench_pipeline --device_ms=10,20 --num_cells=16 --schedule=zb_v \\
        --num_micro_batches=8
"""
from __future__ import annotations

import argparse
import dataclasses
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

from lingpipe.pipeline.planning.layout import num_devices_for
from lingpipe.tools import parser
from lingpipe.tools.command_line import MAX_CELLS, Parser, command, numbers_text

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

    from lingpipe.layers.sequential import Sequential
    from lingpipe.pipeline.execution.program import Program
    from lingpipe.pipeline.planning.pipeline_params import PipelineParams

WARMUP_STEPS = 2
MAX_DEVICE_MS = 60_000


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Returns the flags."""
    p = parser('bench_pipeline', __doc__)
    _add_work(p)
    _add_pipeline(p)
    _add_measurement(p)
    args = p.parse_args(argv)

    if args.device_ms:
        args.stack = 'delay'
    if args.device_ms and not any(args.device_ms):
        p.error('--device_ms=0,0 leaves nothing to measure; use more than 0 for one of them')
    if args.checkpoint_every and not 5 <= args.checkpoint_every <= args.steps:
        p.error(f'--checkpoint_every={args.checkpoint_every} of --steps={args.steps}; use 5 to '
                f'{args.steps}')
    if args.emulate and not args.layer_seconds:
        p.error('--emulate sleeps for measured seconds; name a file with --layer_seconds')
    if args.workers and _num_devices(args) % args.workers:
        p.error(f'--num_cells={args.num_cells} on {_num_devices(args)} devices do not divide among '
                f'--workers={args.workers}; use a multiple')
    return args


def _num_devices(args: argparse.Namespace) -> int:
    """Returns on how many devices the cells are."""
    return num_devices_for(args.schedule, args.num_cells, args.cells_per_device)


def _add_work(p: Parser) -> None:
    """Adds the flags that say which network and which data."""
    p.add_argument('--stack', choices=['transformer', 'amoebanet', 'delay'], default='transformer')
    p.add_number('--layers', 8, 'L: Transformer layers; normal cells of AmoebaNet-D; emulated '
                 'layers', least=1, most=10_000)
    p.add_number('--dim', 256, 'channels of the Transformer', least=1)
    p.add_number('--heads', 4, 'attention heads of the Transformer', least=1)
    p.add_number('--seq', 64, 'T of the Transformer', least=1)
    p.add_number('--filters', 32, 'F of AmoebaNet-D', least=1)
    p.add_number('--image', 64, 'height and width of the images of AmoebaNet-D', least=1)
    p.add_number('--batch', 32, 'examples in a mini-batch', least=1)


def _add_pipeline(p: Parser) -> None:
    """Adds the flags that say how the network is trained."""
    p.add_number('--num_cells', 2, 'K', least=1, most=MAX_CELLS)
    p.add_number('--num_micro_batches', 8, 'M', least=1, most=10_000)
    p.add_argument('--schedule', default='1f1b', help='as pipeline.schedule')
    p.add_number('--cells_per_device', 0, 'as pipeline.cells_per_device', least=0, most=MAX_CELLS)
    p.add_argument('--recompute', choices=['none', 'cell', 'layer'], default='none')
    p.add_argument('--dtype', choices=['float32', 'bfloat16'], default='float32',
                   help='of activations')
    p.add_argument('--optimizer', choices=['SGD', 'RMSProp'], default='SGD',
                   help='RMSProp has momentum')
    p.add_numbers('--device_ms', '', 'F,B: emulated devices with these milliseconds a micro-batch',
                  count=2, least=0, most=MAX_DEVICE_MS)
    p.add_argument('--graph_optimizer', action='store_true', help="leave TensorFlow's Grappler on")
    p.add_argument('--jit_compile', action='store_true', help='XLA compiles the tasks')
    p.add_number('--threads', 1, 'intra-op threads of one device', least=1, most=MAX_CELLS)
    p.add_number('--inter_op_threads', 0, 'of all devices together; default: one each',
                 least=0, most=MAX_CELLS)
    p.add_number('--workers', 0,
                 'processes on loopback that have the cells, evenly; 0: this one has them',
                 least=0, most=MAX_CELLS)


def _add_measurement(p: Parser) -> None:
    """Adds the flags that say what is measured and printed."""
    p.add_number('--steps', 10, 'timed steps; the median counts', least=1)
    p.add_number('--rounds', 1, 'how often pipeline and one device take turns', least=1)
    p.add_number('--checkpoint_every', 0,
                 'timed steps from one checkpoint to the next, 5 or more; 0: none', least=0)
    p.add_argument('--no_baseline', action='store_true',
                   help='measure the pipeline alone, in this process')
    p.add_argument('--losses', action='store_true', help='also print the losses of the first steps')
    p.add_output('--timeline', '', 'save a measured timeline to this path (.png)')
    p.add_argument('--breakdown', action='store_true',
                   help='also say where the devices spend the time of a step')
    p.add_output('--breakdown_png', '', 'save the breakdown as stacked bars to this path (.png)')
    p.add_output('--layer_seconds', '', 'cut the network by the seconds of its layers, and predict '
                 'the step; read from this file (.json), or measured and written to it')
    p.add_argument('--emulate', action='store_true',
                   help='run cells that sleep for the --layer_seconds of theirs')
    p.add_number('--emulation_scale', 1., 'how much longer they sleep', above=0, most=1000)
    p.add_argument('--json', action='store_true', help='print one JSON object')


@dataclasses.dataclass(frozen=True)
class _Clock:
    """A moment, or the difference of two."""
    wall_s: float
    cpu_s: float
    page_faults: int

    @classmethod
    def now(cls) -> _Clock:
        """Returns this moment, for this process."""
        page_faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        return cls(time.perf_counter(), time.process_time(), page_faults)

    def elapsed(self) -> _Clock:
        """Returns the difference from this moment to now."""
        now = self.now()
        return _Clock(now.wall_s - self.wall_s, now.cpu_s - self.cpu_s,
                      now.page_faults - self.page_faults)


@dataclasses.dataclass(frozen=True)
class _Run:
    """What _run has measured.

    Attributes:
      before_s: wall time from the call to the first step.
      steps: a difference for each step, the first ones included.
      losses: one a step.
    """
    before_s: float
    steps: list[_Clock]
    losses: list[float]


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Builds and times one configuration, with its cells in this process or on new workers."""
    from lingpipe.tools.launch_local import Worker, free_addresses
    addresses = free_addresses(args.workers)
    flags = [f'--devices=cpu:{_num_devices(args) // args.workers}'] if args.workers else []
    workers = [Worker(address, flags, hangs_after_s=90., out=2) for address in addresses]
    try:
        return _measure(args, addresses)
    finally:
        for worker in workers:
            worker.end()


def _measure(args: argparse.Namespace, addresses: list[str]) -> dict[str, Any]:
    devices = _configure(args, addresses)
    import tensorflow as tf

    network, arrays, params = _work(args, devices)
    batch = {name: tf.constant(array) for name, array in arrays.items()}
    tf.zeros([1]).numpy()   # starts TensorFlow
    _reset_peak()
    start_mb = _status_mb('VmRSS')

    start = _Clock.now()
    program = _program(args, network, batch, params)
    build = start.elapsed()
    run = _run(args, program, batch)
    first_step_s = build.wall_s + run.before_s + run.steps[0].wall_s
    peak_mb = _status_mb('VmHWM')

    if args.timeline:
        _, times = program.timed_step(batch, len(run.losses))
        times.timeline.save_png(args.timeline, f'{args.stack}, K={args.num_cells}, '
                                         f'M={args.num_micro_batches}, {args.schedule}')

    breakdown = _breakdown(args, program, batch, len(run.losses)) if args.breakdown else {}
    timed = run.steps[WARMUP_STEPS:]
    walls_s = [step.wall_s for step in timed]
    step_s = statistics.median(walls_s)
    num_tasks = sum(len(slots) for slots in program.plan.schedule.devices)
    emulated = {'one_device_step_ms': sum(params.layer_seconds) * args.num_micro_batches * 1e3,
                'balance': program.plan.forecast.balance} if _is_emulated(args) else {}
    num_weights = program.network.num_weights
    new_pages = statistics.median(step.page_faults for step in timed)
    return {'step_ms': step_s * 1e3,
            'cpu_ms': statistics.median(step.cpu_s for step in timed) * 1e3,
            'examples_s': args.batch / step_s,
            'new_pages_mb': new_pages * resource.getpagesize() / 2 ** 20,
            **_checkpoint_ratios(walls_s, args.checkpoint_every),
            'first_step_s': first_step_s,
            'build_cpu_s': build.cpu_s,
            'first_step_cpu_s': run.steps[0].cpu_s,
            'num_tasks': num_tasks,
            'us_a_task': step_s * 1e6 / num_tasks,
            'num_weights': num_weights,
            'start_mb': start_mb,
            'peak_mb': peak_mb,
            'bytes_a_weight': (peak_mb - start_mb) * 2 ** 20 / num_weights,
            **emulated,
            **_predicted(program, step_s),
            'num_devices': len(program.plan.schedule.devices),
            **breakdown,
            'losses': run.losses[:4]}


def _predicted(program: Program, step_s: float) -> dict[str, float]:
    """Returns what the plan says of the step, if it knows the seconds of layers.

    It says nothing of emulated devices whose layers take no time.
    """
    if not any(program.plan.params.layer_seconds or ()):
        return {}
    predicted_s = program.plan.simulate().step_s
    return {'predicted_step_ms': predicted_s * 1e3, 'measured_to_predicted': step_s / predicted_s}


def _breakdown(args: argparse.Namespace, program: Program, batch: dict[str, tf.Tensor],
               first_step: int) -> dict[str, Any]:
    """Times as many steps again with stamps; returns their parts, and those that are predicted."""
    from lingpipe.pipeline.planning.breakdown import StepTimes
    from lingpipe.pipeline.planning.cell import edges_of_tasks
    from lingpipe.pipeline.planning.replay import replay
    from lingpipe.training.reporting import breakdown_report

    plan = program.plan
    measured = [program.timed_step(batch, first_step + i)[1]
                for i in range(WARMUP_STEPS + args.steps)][WARMUP_STEPS:]
    predicted = {'replayed': replay(plan.schedule, edges_of_tasks(plan.cells), measured)}
    if plan.params.layer_seconds:
        predicted = {'planned': StepTimes(plan.simulate().timeline), **predicted}
    title = (f'{args.stack}, K={args.num_cells}, M={args.num_micro_batches}, {args.schedule}, '
             f'recompute {args.recompute}, mean of {args.steps} steps')
    report = breakdown_report.report(title, plan, measured, predicted)
    if args.breakdown_png:
        report.save_png(args.breakdown_png)
    return {'breakdown': {**report.to_json(), 'text': report.text()}}


def _configure(args: argparse.Namespace, addresses: list[str]) -> tuple[str, ...]:
    """Sets this process's devices and threads; returns the workers' devices, if there are any."""
    from lingpipe import cluster
    if not addresses:
        num_devices = _num_devices(args)
        cluster.configure(num_devices, args.threads, args.inter_op_threads or num_devices)
        return ()

    from lingpipe.cluster import devices
    from lingpipe.cluster.client import Connection
    worker_devices = devices.find(','.join(addresses), _num_devices(args), wait_s=60.)
    cluster.configure(worker_devices.num_cpus, args.threads, args.inter_op_threads)
    Connection(worker_devices.workers)
    return worker_devices.names


def _work(args: argparse.Namespace, devices: tuple[str, ...]
          ) -> tuple[Sequential.Params, dict[str, np.ndarray], PipelineParams]:
    """Returns the network, a mini-batch, and how it is cut and run."""
    import tensorflow as tf

    from lingpipe.tools import emulation, stacks

    params = _pipeline_params(args, devices)
    if args.stack == 'delay':
        share = _num_devices(args) / args.num_cells
        forward_ms, backward_ms = (share * ms for ms in args.device_ms or (0., 0.))
        times_s = [(forward_ms / 1e3, backward_ms / 1e3)] * args.num_cells
        return (stacks.delays(args.num_cells, forward_ms, backward_ms),
                stacks.delay_batch(args.num_micro_batches),
                emulation.with_cell_seconds(params, times_s))

    if args.stack == 'transformer':
        network = stacks.transformer(args.layers, args.dim, args.heads, args.dtype)
        arrays = stacks.transformer_batch(args.batch, args.seq, args.dim)
    else:
        network = stacks.amoebanet(args.layers, args.filters, args.dtype)
        arrays = stacks.image_batch(args.batch, args.image)
    spec = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in arrays.items()}
    if args.layer_seconds:
        params = emulation.with_layer_seconds(args.layer_seconds, network, spec, params)
    if args.emulate:
        network, params = emulation.sleeping_cells(network, spec, params, args.emulation_scale)
        arrays = stacks.delay_batch(args.num_micro_batches)
    return network, arrays, params


def _pipeline_params(args: argparse.Namespace, devices: tuple[str, ...]) -> PipelineParams:
    from lingpipe.pipeline.planning.pipeline_params import PipelineParams
    return PipelineParams(
        num_cells=args.num_cells, num_micro_batches=args.num_micro_batches, schedule=args.schedule,
        cells_per_device=args.cells_per_device, recompute=args.recompute,
        use_graph_optimizer=args.graph_optimizer, devices=devices, jit_compile=args.jit_compile)


def _is_emulated(args: argparse.Namespace) -> bool:
    """Whether cells sleep, so that one device would take the sum of their times."""
    return bool(args.device_ms or args.emulate)


def _program(args: argparse.Namespace, network: Sequential.Params, batch: dict[str, tf.Tensor],
             params: PipelineParams) -> Program:
    """Builds the program, its weights and the graph of its step."""
    import tensorflow as tf

    from lingpipe.learning import learning_rates, optimizers
    from lingpipe.learning.learner import Learner
    from lingpipe.pipeline.execution.program import Program
    from lingpipe.tools import stacks

    is_sgd = args.optimizer == 'SGD'
    optimizer = optimizers.SGD.Params() if is_sgd else optimizers.RMSProp.Params(momentum=0.9)
    learning_rate = learning_rates.Constant.Params(rate=0.003)
    learner = Learner.Params(optimizer=optimizer, learning_rate=learning_rate).instantiate()
    spec = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in batch.items()}

    program = Program(network.instantiate('model'), spec, params, learner)
    if args.stack == 'transformer' and not args.emulate:
        stacks.assign_transformer_weights(program, args.layers, args.dim)
    program.sent_bytes()   # builds the graph of the step
    return program


def _run(args: argparse.Namespace, program: Program, batch: dict[str, tf.Tensor]) -> _Run:
    """Makes and measures the first steps and the timed ones, with their checkpoints."""
    from lingpipe.checkpoint import Checkpointer

    start = _Clock.now()
    steps = []
    losses = []
    variables = program.variables()
    with tempfile.TemporaryDirectory(prefix='bench_pipeline_') as directory:
        checkpointer = Checkpointer(directory, keep=1)
        if args.checkpoint_every:
            checkpointer.prepare(variables)
        before_s = start.elapsed().wall_s

        for step in range(WARMUP_STEPS + args.steps):
            began = _Clock.now()
            timed_step = step - WARMUP_STEPS
            every = args.checkpoint_every
            if every and timed_step >= 0 and timed_step % every == 0:
                checkpointer.begin(step, variables)
            losses.append(float(program.train_step(batch, step)['loss']))
            checkpointer.check()
            steps.append(began.elapsed())
        checkpointer.wait()
    return _Run(before_s, steps, losses)


def _checkpoint_ratios(times_s: list[float], every: int) -> dict[str, float]:
    """Returns how much longer steps take while a checkpoint begins, and right after it.

    They are compared with the last fifth of the steps before the next checkpoint. The writer does
    not disturb those, since it spreads its work over four fifths of the time at most.
    """
    if not every:
        return {}
    first_s = statistics.median(times_s[::every])
    second_s = statistics.median(times_s[1::every])
    undisturbed_s = statistics.median(seconds for i, seconds in enumerate(times_s)
                                      if i % every >= every - every // 5)
    return {'checkpoint_step_ratio': first_s / undisturbed_s,
            'next_step_ratio': second_s / undisturbed_s}


def compare(args: argparse.Namespace) -> dict[str, Any]:
    """Runs the pipeline and one device in turn, each in a process of its own."""
    from lingpipe.pipeline.planning.simulator import bound
    flags = _flags(args)
    pipeline_runs = []
    one_device_runs = []
    for _ in range(args.rounds):
        pipeline_runs.append(measured(flags))
        if not _is_emulated(args):
            alone = argparse.Namespace(**{**vars(args), 'breakdown': False})
            one_device = [*_flags(alone), '--num_cells=1', '--schedule=1f1b',
                          '--cells_per_device=0', '--workers=0', '--timeline=']
            one_device_runs.append(measured(one_device))

    m = args.num_micro_batches
    step_ms = statistics.median(run['step_ms'] for run in pipeline_runs)
    result = {**pipeline_runs[-1], 'step_ms': step_ms, 'examples_s': args.batch / step_ms * 1e3}
    if _is_emulated(args):
        one_device_ms = result['one_device_step_ms']
    else:
        one_device_ms = statistics.median(run['step_ms'] for run in one_device_runs)
        result['one_device_peak_mb'] = one_device_runs[-1]['peak_mb']

    speedup = one_device_ms / step_ms
    most = bound(result['num_devices'], m)
    return {**result, 'one_device_step_ms': one_device_ms, 'speedup': speedup, 'bound': most,
            'share_of_bound': speedup / most}


def _flags(args: argparse.Namespace) -> list[str]:
    """Returns the flags of this tool that say what `args` says."""
    values = {**vars(args), 'device_ms': numbers_text(args.device_ms)}
    flags = [f'--{name}={value}' for name, value in values.items()
             if not isinstance(value, bool) and value != '']
    return flags + [f'--{name}' for name, value in values.items() if value is True]


def measured(flags: list[str]) -> dict[str, Any]:
    """Returns what this tool measures in a process of its own, without the baseline.

    Raises:
      ValueError: the process failed; the message has the last line that it printed.
    """
    bench = [sys.executable, '-m', 'lingpipe.tools.bench_pipeline', *flags, '--no_baseline',
             '--json']
    done = subprocess.run(bench, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ['it has said nothing']
        reason = lines[-1].removeprefix('bench_pipeline: ')
        raise ValueError(f'{" ".join(bench[1:])} ended with exit code {done.returncode}: {reason}')
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _status_mb(name: str) -> float:
    with open('/proc/self/status') as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(name))


def _reset_peak() -> None:
    """Sets the peak, VmHWM, to what is resident now. psutil neither reads nor resets it."""
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
    breakdown = result.pop('breakdown', None)
    for name, value in result.items():
        print(f'{name:22} {value:,.3f}' if isinstance(value, float) else f'{name:22} {value}')
    if breakdown:
        print('\n' + breakdown['text'])


if __name__ == '__main__':
    main()
