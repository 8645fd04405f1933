"""Pipeline benchmark: one configuration of bench_pipeline's flags, built and timed."""
from __future__ import annotations

import argparse
import dataclasses
import resource
import statistics
import tempfile
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lingpipe.pipeline.planning.layout import num_devices_for
from lingpipe.wording.counts import counted

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

    from lingpipe.layers.sequential import Sequential
    from lingpipe.pipeline.execution.program import Program
    from lingpipe.pipeline.planning.pipeline_params import PipelineParams

WARMUP_STEPS = 2


@dataclasses.dataclass(frozen=True)
class Clock:
    """A moment, or the difference of two."""
    wall_s: float
    cpu_s: float
    page_faults: int

    @classmethod
    def now(cls) -> Clock:
        """Returns this moment, for this process."""
        page_faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        return cls(time.perf_counter(), time.process_time(), page_faults)

    def elapsed(self) -> Clock:
        """Returns the difference from this moment to now."""
        now = self.now()
        return Clock(now.wall_s - self.wall_s, now.cpu_s - self.cpu_s,
                     now.page_faults - self.page_faults)


@dataclasses.dataclass(frozen=True)
class Run:
    """The steps of a program, timed.

    Attributes:
      before_s: wall time from the call to the first step.
      steps: a difference for each step, the first ones included.
      losses: one a step.
    """
    before_s: float
    steps: list[Clock]
    losses: list[float]


def num_devices_of(args: argparse.Namespace) -> int:
    """Returns on how many devices the cells of one replica are."""
    return num_devices_for(args.schedule, args.num_cells, args.cells_per_device)


def num_devices_of_all(args: argparse.Namespace) -> int:
    """Returns on how many devices the cells of all replicas are."""
    return args.num_replicas * num_devices_of(args)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Builds and times one configuration, with its cells in this process or on new workers."""
    from lingpipe.tools.launch_local import Worker, free_addresses
    addresses = free_addresses(args.workers)
    flags = [f'--devices=cpu:{num_devices_of_all(args) // args.workers}'] if args.workers else []
    workers = [Worker(address, flags, hangs_after_s=90., out=2) for address in addresses]
    try:
        return _measure(args, addresses)
    finally:
        for worker in workers:
            worker.end()


def _measure(args: argparse.Namespace, addresses: list[str]) -> dict[str, Any]:
    devices = configure(args, addresses)
    import tensorflow as tf

    network, arrays, params = work_of(args, devices)
    batch = {name: tf.constant(array) for name, array in arrays.items()}
    tf.zeros([1]).numpy()   # starts TensorFlow
    reset_peak()
    start_mb = status_mb('VmRSS')

    start = Clock.now()
    program = build_program(args, network, batch, params)
    build = start.elapsed()
    run = _run(args, program, batch)
    peak_mb = status_mb('VmHWM')

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
                'balance': program.plan.forecast.balance} if is_emulated(args) else {}
    num_weights = program.network.num_weights
    new_pages = statistics.median(step.page_faults for step in timed)
    return {'step_ms': step_s * 1e3,
            'cpu_ms': statistics.median(step.cpu_s for step in timed) * 1e3,
            'examples_s': args.batch / step_s,
            'new_pages_mb': new_pages * resource.getpagesize() / 2 ** 20,
            **_checkpoint_ratios(walls_s, args.checkpoint_every),
            'first_step_s': build.wall_s + run.before_s + run.steps[0].wall_s,
            'build_cpu_s': build.cpu_s,
            'first_step_cpu_s': run.steps[0].cpu_s,
            'num_tasks': num_tasks,
            'us_a_task': step_s * 1e6 / num_tasks,
            'num_weights': num_weights,
            'start_mb': start_mb,
            'peak_mb': peak_mb,
            'predicted_device_mb': max(program.plan.peak_bytes().values()) / 2 ** 20,
            'bytes_a_weight': (peak_mb - start_mb) * 2 ** 20 / num_weights / args.num_replicas,
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
    from lingpipe.pipeline.planning.step_forecast import forecast_step
    forecast = forecast_step(program.plan)
    parts_ms = {f'predicted_{part}_ms': seconds * 1e3
                for part, seconds in forecast.parts.items() if seconds}
    return {'predicted_step_ms': forecast.step_s * 1e3, **parts_ms,
            'measured_to_predicted': step_s / forecast.step_s}


def _breakdown(args: argparse.Namespace, program: Program, batch: dict[str, tf.Tensor],
               first_step: int) -> dict[str, Any]:
    """Times as many steps again with stamps; returns their parts, and those that are predicted."""
    from lingpipe.pipeline.planning.cell import edges_of_tasks
    from lingpipe.pipeline.planning.replay import replay
    from lingpipe.pipeline.planning.step_forecast import forecast_step
    from lingpipe.training.reporting import breakdown_report

    plan = program.plan
    measured = [program.timed_step(batch, first_step + i)[1]
                for i in range(WARMUP_STEPS + args.steps)][WARMUP_STEPS:]
    predicted = {'replayed': replay(plan.schedule, edges_of_tasks(plan.cells), measured)}
    if plan.params.layer_seconds:
        predicted = {'planned': forecast_step(plan).times(), **predicted}
    title = (f'{args.stack}, K={args.num_cells}, M={args.num_micro_batches}, {args.schedule}, '
             f'recompute {args.recompute}, mean of {counted(args.steps, "step")}')
    report = breakdown_report.report(title, plan, measured, predicted)
    if args.breakdown_png:
        report.save_png(args.breakdown_png)
    return {'breakdown': {**report.to_json(), 'text': report.text()}}


def configure(args: argparse.Namespace, addresses: Sequence[str] = ()) -> tuple[str, ...]:
    """Sets this process's devices and threads; returns the workers' devices, if there are any."""
    from lingpipe import cluster
    if not addresses:
        num_devices = num_devices_of_all(args)
        cluster.configure(num_devices, args.threads, args.inter_op_threads or num_devices)
        return ()

    from lingpipe.cluster import devices
    from lingpipe.cluster.client import Connection
    worker_devices = devices.find(','.join(addresses), num_devices_of_all(args), wait_s=60.)
    cluster.configure(worker_devices.num_cpus, args.threads, args.inter_op_threads)
    Connection(worker_devices.workers)
    return worker_devices.names


def work_of(args: argparse.Namespace, devices: tuple[str, ...] = ()
            ) -> tuple[Sequential.Params, dict[str, np.ndarray], PipelineParams]:
    """Returns the network, a mini-batch, and how it is cut and run."""
    import tensorflow as tf

    from lingpipe.tools import emulation, stacks

    params = _pipeline_params(args, devices)
    if args.stack == 'delay':
        share = num_devices_of(args) / args.num_cells
        forward_ms, backward_ms = (share * ms for ms in args.device_ms or (0., 0.))
        times_s = [(forward_ms / 1e3, backward_ms / 1e3)] * args.num_cells
        return (stacks.delays(args.num_cells, forward_ms, backward_ms, params.layout),
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
        device_bytes=args.device_mb * 2 ** 20 or None,
        num_replicas=args.num_replicas, shard_slots=args.shard_slots,
        use_graph_optimizer=args.graph_optimizer, devices=devices, jit_compile=args.jit_compile,
        shares_threads=False if is_emulated(args) else None)


def is_emulated(args: argparse.Namespace) -> bool:
    """Whether cells sleep, so that one device would take the sum of their times."""
    return bool(args.device_ms or args.emulate)


def build_program(args: argparse.Namespace, network: Sequential.Params,
                  batch: dict[str, tf.Tensor], params: PipelineParams) -> Program:
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


def _run(args: argparse.Namespace, program: Program, batch: dict[str, tf.Tensor]) -> Run:
    """Makes and measures the first steps and the timed ones, with their checkpoints."""
    from lingpipe.checkpoint import Checkpointer

    start = Clock.now()
    steps = []
    losses = []
    variables = program.variables()
    with tempfile.TemporaryDirectory(prefix='bench_pipeline_') as directory:
        checkpointer = Checkpointer(directory, keep=1)
        if args.checkpoint_every:
            checkpointer.prepare(variables)
        before_s = start.elapsed().wall_s

        for step in range(WARMUP_STEPS + args.steps):
            began = Clock.now()
            timed_step = step - WARMUP_STEPS
            every = args.checkpoint_every
            if every and timed_step >= 0 and timed_step % every == 0:
                checkpointer.begin(step, variables)
            losses.append(float(program.train_step(batch, step)['loss']))
            checkpointer.check()
            steps.append(began.elapsed())
        checkpointer.wait()
    return Run(before_s, steps, losses)


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


def status_mb(name: str) -> float:
    """Returns VmRSS, the memory of this process in units of 2^20 bytes, or VmHWM, its peak."""
    with open('/proc/self/status') as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(name))


def reset_peak() -> None:
    """Sets the peak, VmHWM, to what is resident now. psutil neither reads nor resets it."""
    with open('/proc/self/clear_refs', 'w') as refs:
        refs.write('5')
