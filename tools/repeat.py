"""Runs an experiment several times with other seeds, and says how much its results differ.

    python -m lingpipe.tools.repeat --model=image.fashion_mnist.FromScratch \\
        --logdir=/tmp/scratch --runs=5 --json

Run i trains in LOGDIR/run_i with every Param of --seeds set to i. A run that has ended is not
repeated, and one that was stopped goes on. The metrics are those of the last evaluation of each
run.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from typing import Any

from lingpipe.tools import parser
from lingpipe.tools.command_line import command
from lingpipe.training import registry
from lingpipe.training.evaluation_log import EvaluationLog
from lingpipe.wording.counts import counted


def run(args: argparse.Namespace, i: int) -> dict[str, float]:
    """Trains with seed i; returns 'INPUT/METRIC' -> value of the last evaluation.

    Raises:
      ValueError: the trainer failed, and has said why; or a longer run is in the logdir.
    """
    logdir = os.path.join(args.logdir, f'run_{i}')
    trainer = [sys.executable, '-m', 'lingpipe.trainer', f'--model={args.model}',
               f'--logdir={logdir}', '--mode=train_and_eval']
    for setting in settings(args, i):
        trainer += ['--set', setting]
    done = subprocess.run(trainer, stdout=2, check=False)
    if done.returncode:
        raise ValueError(f'run {i} ended with exit code {done.returncode}: see above; runs that '
                         f'have ended are kept in {args.logdir}.')

    lines = EvaluationLog(logdir).read()   # a later evaluation replaces an earlier one
    num_steps = registry.get(args.model).override_all(settings(args, i)).train.num_steps
    if lines and lines[-1]['step'] > num_steps:
        raise ValueError(f'{logdir} holds a run of {counted(lines[-1]["step"], "step")}, and '
                         f'train.num_steps={num_steps}; choose another --logdir.')
    return {f'{line["input"]}/{name}': value for line in lines for name, value in line.items()
            if name not in ('step', 'input')}


def settings(args: argparse.Namespace, i: int) -> list[str]:
    """Returns PATH=VALUE for all Params that run i sets."""
    return [*args.set, *(f'{path}={i}' for path in args.seeds.split(','))]


def spread(runs: list[dict[str, float]]) -> dict[str, dict[str, Any]]:
    """Returns mean, sample standard deviation, least and largest value, and all values by metric.

    The standard deviation of one run is 0. The values are in the order of the runs.
    """
    rows = {}
    for metric in runs[0]:
        values = [run_metrics[metric] for run_metrics in runs]
        rows[metric] = {'mean': statistics.mean(values),
                        'std': statistics.stdev(values) if len(values) > 1 else 0.,
                        'min': min(values), 'max': max(values), 'values': values}
    return rows


@command
def main(argv: list[str] | None = None) -> None:
    """Prints mean and spread of every metric."""
    p = parser('repeat', __doc__)
    p.add_argument('--model', required=True)
    p.add_output_folder('--logdir', 'of all runs')
    p.add_number('--runs', 5, 'how many', least=1)
    p.add_argument('--seeds', default='seed,train_input.seed',
                   help='paths of the Params that are set to 0, 1, 2, ...')
    p.add_argument('--set', action='append', default=[], metavar='PATH=VALUE',
                   help='changes a Param, in all runs')
    p.add_argument('--json', action='store_true', help='print one JSON object')
    args = p.parse_args(argv)
    for path in args.seeds.split(','):
        if any(setting.partition('=')[0].strip() == path for setting in args.set):
            p.error(f'--set {path} is what --seeds={args.seeds} sets in each run; leave one of '
                    'them out')
    registry.get(args.model).override_all(settings(args, 0)).validate()
    rows = spread([run(args, i) for i in range(args.runs)])
    if args.json:
        print(json.dumps({'model': args.model, 'runs': args.runs, 'metrics': rows}))
        return
    width = max(map(len, rows))
    print(f'{"metric".ljust(width)}  {"mean":>9}  {"std":>9}  {"min":>9}  {"max":>9}')
    for metric, row in rows.items():
        numbers = '  '.join(f'{row[name]:9.4f}' for name in ('mean', 'std', 'min', 'max'))
        print(f'{metric.ljust(width)}  {numbers}')


if __name__ == '__main__':
    main()
