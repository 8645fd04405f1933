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

--compare times schedules beside --schedule, one step of each in turn and --rounds times, in one
process. --num_cells is that of --schedule; a schedule with two cells a device gets twice as many:

    python -m lingpipe.tools.bench_pipeline --rounds=40 \\
        --compare=gpipe,interleaved,zb_h1,zb_h2,zb_v,v_half,v_min,dual_pipe_v,auto
"""
from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from typing import Any

from lingpipe.pipeline.planning.schedules import TRAINING
from lingpipe.tools import parser
from lingpipe.tools.command_line import MAX_CELLS, Parser, command, numbers_text
from lingpipe.tools.pipeline_benchmark import is_emulated, measure, num_devices_of_all
from lingpipe.tools.schedule_comparison import compare_schedules, text

MAX_DEVICE_MS = 60_000
NAMED = (*TRAINING, 'auto')   # the schedules that have a name


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
    if args.num_replicas > 1 and is_emulated(args):
        p.error(f'--num_replicas={args.num_replicas} of emulated devices; leave one of them out')
    if args.workers and num_devices_of_all(args) % args.workers:
        p.error(f'--num_cells={args.num_cells} on {num_devices_of_all(args)} devices do not divide '
                f'among --workers={args.workers}; use a multiple')
    _check_compared(p, args)
    return args


def _check_compared(p: Parser, args: argparse.Namespace) -> None:
    """Checks the names of the schedules to compare, and that no other measurement is asked for."""
    if not args.compare:
        return
    for name in args.compare.split(','):
        if name not in NAMED:
            p.error(f'--compare has {name!r}; write names with commas between: {",".join(NAMED)}')
        if args.compare.split(',').count(name) > 1 or name == args.schedule:
            p.error(f'--compare has {name} more than once; --schedule={args.schedule} takes part '
                    f'anyway')
    if args.num_replicas > 1:
        p.error(f'--compare times one replica, not --num_replicas={args.num_replicas}; leave one '
                'of them out')
    for name in ('workers', 'checkpoint_every', 'timeline', 'breakdown', 'breakdown_png', 'losses'):
        if getattr(args, name):
            p.error(f'--compare and --{name} exclude each other; leave one of them out')


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
    p.add_number('--num_replicas', 1, 'R, whose devices are all in use; bytes_a_weight are those '
                 'of one', least=1, most=MAX_CELLS)
    p.add_argument('--shard_slots', action='store_true', help='as pipeline.shard_slots')
    p.add_argument('--recompute', choices=['none', 'cell', 'layer', 'fit'], default='none',
                   help='as pipeline.recompute')
    p.add_number('--device_mb', 0., 'as pipeline.device_bytes, in units of 2^20 bytes; 0: no limit',
                 least=0)
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
    p.add_argument('--compare', default='', help='time these schedules, with commas between, '
                   'beside --schedule: --rounds steps of each')
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


def compare(args: argparse.Namespace) -> dict[str, Any]:
    """Runs the pipeline and one device in turn, each in a process of its own."""
    from lingpipe.pipeline.planning.simulator import bound
    flags = _flags(args)
    pipeline_runs = []
    one_device_runs = []
    for _ in range(args.rounds):
        pipeline_runs.append(measured(flags))
        if not is_emulated(args):
            alone = argparse.Namespace(**{**vars(args), 'breakdown': False})
            one_device = [*_flags(alone), '--num_cells=1', '--schedule=1f1b',
                          '--cells_per_device=0', '--num_replicas=1', '--workers=0',
                          '--timeline=']
            one_device_runs.append(measured(one_device))

    m = args.num_micro_batches
    step_ms = statistics.median(run['step_ms'] for run in pipeline_runs)
    result = {**pipeline_runs[-1], 'step_ms': step_ms, 'examples_s': args.batch / step_ms * 1e3}
    if is_emulated(args):
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
      ValueError: the process failed; the message is its own sentence, or the last line that it
        printed.
    """
    bench = [sys.executable, '-m', 'lingpipe.tools.bench_pipeline', *flags, '--no_baseline',
             '--json']
    done = subprocess.run(bench, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ['it has said nothing']
        reason = lines[-1].removeprefix('bench_pipeline: ')
        if reason == lines[-1]:   # It was killed, or Python has failed.
            reason = f'the measurement ended with exit code {done.returncode}: {reason}'
        raise ValueError(reason.removesuffix('; --help lists all flags.'))
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@command
def main(argv: list[str] | None = None) -> None:
    """Measures, and prints a line for each number or one JSON object."""
    args = parse(argv)
    if args.compare:
        comparison = compare_schedules(args, args.compare.split(','))
        print(json.dumps(comparison) if args.json else text(comparison))
        return
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
