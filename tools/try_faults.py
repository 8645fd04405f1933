"""Breaks a run on purpose, again and again, and compares its end with an undisturbed run.

    python -m lingpipe.tools.try_faults --logdir=/tmp/faults --count=20
    python -m lingpipe.tools.try_faults --logdir=/tmp/faults --kinds=kill,cut,flip --seed=3
    python -m lingpipe.tools.try_faults --list

A run of two workers and a trainer goes on in LOGDIR/run. One fault after the other is drawn from
the seed: its kind, what it hits, the moment, and how long it lasts. After each fault the run must
go on by itself, or end with a sentence, after which this tool does what the sentence advises and
starts the trainer again. Most faults come when the run has recovered from the one before, some in
the middle of that. At the end, the same number of steps is made in one process, in
LOGDIR/undisturbed, and all variables must be equal to the last bit.

Some kinds need root, which makes network namespaces and a small disk. A kind that this machine
cannot make is left out, with a sentence. The exit code is 1 if a variable differs or the run did
not go on.
"""
from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import pathlib
import random
import shutil
import subprocess
import sys
import time
from typing import Any

from lingpipe.process import closed_pipe
from lingpipe.tools import compare_checkpoints, parser
from lingpipe.tools.command_line import check_folder, command
from lingpipe.tools.faults import kinds as fault_kinds
from lingpipe.tools.faults import surroundings
from lingpipe.tools.faults.disturbed_run import SETTINGS, DisturbedRun, NotRecoveredError
from lingpipe.tools.faults.kinds import KINDS, Kind
from lingpipe.training import registry
from lingpipe.wording.counts import counted

SMALL_RUN = 'lingpipe.tools.faults.small_run.SmallRun'
_EARLY_SHARE = 0.2   # of faults that come while the run may still recover from the one before


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault that was made.

    Attributes:
      kind: its name.
      step: of the newest checkpoint before it.
      text: what it was.
      seconds: from its end until the run had gone on; None: the next fault came before.
    """
    kind: str
    step: int
    text: str
    seconds: float | None

    def line(self, number: int) -> str:
        """Returns it as a line of the table."""
        ending = ('the next one comes at once' if self.seconds is None
                  else f'went on after {self.seconds:.1f} s')
        return f'{number:4d}  step {self.step:6d}  {self.kind:12s}  {self.text}; {ending}'


def make(run: DisturbedRun, kind: Kind, chance: random.Random) -> Fault:
    """Makes a fault, and waits until the run has recovered, or for a moment only.

    Raises:
      NotRecoveredError: it has not.
    """
    run.wait(chance.uniform(0., 2.))
    step = run.newest()
    text = kind.cause(run, chance)
    if chance.random() < _EARLY_SHARE:
        run.wait(chance.uniform(0., 10.))
        return Fault(kind.name, step, text, None)

    start_s = time.monotonic()
    run.wait_for_checkpoint(run.newest())
    return Fault(kind.name, step, text, time.monotonic() - start_s)


def disturb(run: DisturbedRun, args: argparse.Namespace) -> tuple[list[Fault], str]:
    """Makes all faults; returns them, and how the run failed, or ''. At the end, it is stopped."""
    chance = random.Random(args.seed)
    faults: list[Fault] = []
    kind_name = 'the start'
    try:
        run.wait_for_checkpoint(0)
        for kind in fault_kinds.drawn(args.kinds, args.count, chance):
            kind_name = kind.name
            faults.append(make(run, kind, chance))
            if not args.json:
                closed_pipe.say(faults[-1].line(len(faults)), sys.stdout)
        kind_name = 'the end'
        run.wait_for_checkpoint(run.newest())
        run.stop_trainer()
    except NotRecoveredError as error:
        return faults, f'fault {len(faults) + 1}, {kind_name}: {error}'
    return faults, ''


def train_undisturbed(flags: list[str], logdir: pathlib.Path, steps: int) -> None:
    """Makes the same number of steps in one process.

    Raises:
      ValueError: the trainer fails.
    """
    trainer = [sys.executable, '-m', 'lingpipe.trainer', *flags, f'--logdir={logdir}',
               '--mode=train', f'--steps={steps}']
    done = subprocess.run(trainer, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode:
        last_lines = done.stderr.strip().splitlines()[-3:]
        raise ValueError(f'the undisturbed run failed: {" ".join(last_lines)}')


def try_faults(args: argparse.Namespace, missing: dict[str, str]) -> dict[str, Any]:
    """Disturbs a run, compares it, and returns the JSON object."""
    folder = pathlib.Path(args.logdir)
    logdir, undisturbed = folder / 'run', folder / 'undisturbed'
    flags = [f'--model={args.model}', *(f'--set={one}' for one in (*SETTINGS, *args.set))]
    names = {kind.name for kind in args.kinds}
    with surroundings.prepared(folder / 'disk', names, args.seed) as place:
        run = DisturbedRun(folder / 'disk' / 'run', folder, flags, place, args.limit_s)
        try:
            faults, failure = disturb(run, args)
            steps = run.newest()
        finally:
            run.end()
            with contextlib.suppress(FileNotFoundError):
                shutil.copytree(folder / 'disk' / 'run', logdir)   # the disk may end with the block
    shutil.rmtree(folder / 'disk', ignore_errors=True)

    rows = []
    if not failure:
        train_undisturbed(flags, undisturbed, steps)
        rows = compare_checkpoints.compare(str(logdir), str(undisturbed), '.*')
    differing = [row['key'] for row in rows if not row.get('is_same')]
    return {'model': args.model, 'seed': args.seed, 'left_out': missing,
            'faults': [dataclasses.asdict(fault) for fault in faults],
            'count_by_kind': {kind.name: [fault.kind for fault in faults].count(kind.name)
                              for kind in args.kinds},
            'sentences': run.endings, 'steps': steps, 'failure': failure,
            'variables': len(rows), 'differing': differing}


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Returns the flags."""
    p = parser('try_faults', __doc__)
    p.add_argument('--list', action='store_true', help='print the kinds of faults, and end')
    p.add_argument('--logdir', default='', help='a folder that is new or empty')
    p.add_argument('--kinds', default='', help='which, with commas between; default: all')
    p.add_number('--count', 10, 'of faults', least=1, most=10**6)
    p.add_number('--seed', 0, 'draws the faults', least=0)
    p.add_number('--limit_s', 300., 'after which a run that does not go on has failed', least=10,
                 most=1e6)
    p.add_argument('--model', default=SMALL_RUN, help='an experiment of at least two cells')
    p.add_argument('--set', action='append', default=[], metavar='PATH=VALUE',
                   help='changes a Param of the experiment')
    p.add_argument('--json', action='store_true', help='print one JSON object')
    args = p.parse_args(argv)
    try:
        args.kinds = fault_kinds.find(args.kinds)
        if not args.list:
            _check_new(args.logdir)
    except ValueError as error:
        p.error(str(error))
    return args


def _check_new(logdir: str) -> None:
    """Raises ValueError unless --logdir names a folder that can be made, or an empty one."""
    check_folder('--logdir', logdir)
    folder = pathlib.Path(logdir)
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f'--logdir={logdir} is not empty; name a new folder')


def print_list(rows: list[dict[str, str]], is_json: bool) -> None:
    """Prints all kinds."""
    if is_json:
        print(json.dumps({'kinds': rows}))
        return
    for row in rows:
        missing = f' Not here: {row["missing"]}.' if row['missing'] else ''
        print(f'{row["name"]:12s}  {row["text"]}{missing}')


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags, disturbs a run, and prints what came of it."""
    args = parse(argv)
    if args.list:
        rows = [{'name': kind.name, 'text': kind.text, 'missing': kind.missing()} for kind in KINDS]
        print_list(rows, args.json)
        return

    params = registry.get(args.model).override_all([*SETTINGS, *args.set])
    params.validate()
    if params.pipeline.num_cells < 2:
        raise ValueError(f'pipeline.num_cells={params.pipeline.num_cells} leaves one of the two '
                         'workers without a cell; use 2 or more.')
    missing = {kind.name: kind.missing() for kind in args.kinds if kind.missing()}
    args.kinds = [kind for kind in args.kinds if kind.name not in missing]
    for name, why in missing.items():
        print(f'try_faults: {name} is left out: {why}.', file=sys.stderr)
    if not args.kinds:
        raise ValueError('no kind of --kinds can be made here; --list says which can.')

    outcome = try_faults(args, missing)
    if args.json:
        print(json.dumps(outcome))
    else:
        print(summary(outcome))
    if outcome['failure'] or outcome['differing']:
        sys.exit(1)


def summary(outcome: dict[str, Any]) -> str:
    """Returns what came of the faults, for people."""
    lines = [f'the trainer ended with: {sentence}' for sentence in outcome['sentences']]
    counts = ', '.join(f'{count} {name}' for name, count in outcome['count_by_kind'].items())
    lines.append(f'{counted(len(outcome["faults"]), "fault")}: {counts}')
    if outcome['failure']:
        lines.append(f'FAILED at {outcome["failure"]}')
    else:
        num_same = outcome['variables'] - len(outcome['differing'])
        lines.append(f'{num_same} of {outcome["variables"]} variables are equal to the last bit '
                     f'after step {outcome["steps"]}')
        lines += [f'{key} differs' for key in outcome['differing']]
    return '\n'.join(lines)


if __name__ == '__main__':
    main()
