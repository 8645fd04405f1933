"""Schedule comparison: how long the steps of schedules take, beside those of another schedule.

The speed of a machine that is shared drifts by a quarter within minutes, so that processes which
run one after the other show nothing smaller. Here all programs are built in one process. In each
round every program makes one step, in an order that is shuffled, and its time is divided by that of
the base schedule in the same round. The base takes part a second time, with a program of its own,
as a control: its ratio shows how far from 1 a ratio may be and still mean nothing.
"""
from __future__ import annotations

import argparse
import dataclasses
import math
import random
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lingpipe.pipeline.planning.schedules import SEVERAL_CELLS_A_DEVICE
from lingpipe.tools.pipeline_benchmark import (
    WARMUP_STEPS,
    Clock,
    build_program,
    configure,
    num_devices_of,
    work_of,
)
from lingpipe.wording.counts import counted

if TYPE_CHECKING:
    import tensorflow as tf

    from lingpipe.pipeline.execution.program import Program

CONTROL = 'control'
_ORDER_SEED = 1234


@dataclasses.dataclass(frozen=True)
class _Entry:
    """One of the programs that take turns."""
    name: str
    program: Program
    batch: dict[str, tf.Tensor]

    def step(self, number: int) -> Clock:
        """Makes a step, and returns what it took."""
        start = Clock.now()
        self.program.train_step(self.batch, number)['loss'].numpy()
        return start.elapsed()


def compare_schedules(args: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """Builds a program for each schedule, and times their steps in turn.

    Args:
      args: what bench_pipeline is asked for. `schedule` is the base, and `num_cells` its cells; a
        schedule with more cells on each device gets as many more.
      names: of the schedules besides the base.

    Returns:
      'base', 'rounds', and 'schedules': a row for each.
    """
    configure(args)
    entries = [_entry(args, args.schedule, args.schedule), _entry(args, args.schedule, CONTROL),
               *(_entry(args, name, name) for name in names)]

    for number in range(WARMUP_STEPS):
        for entry in entries:
            entry.step(number)
    took: dict[str, list[Clock]] = {entry.name: [] for entry in entries}
    shuffle = random.Random(_ORDER_SEED).shuffle
    for number in range(WARMUP_STEPS, WARMUP_STEPS + args.rounds):
        shuffle(entries)
        for entry in entries:
            took[entry.name].append(entry.step(number))

    rows = [_row(name, clocks, took[args.schedule]) for name, clocks in took.items()]
    return {'base': args.schedule, 'rounds': args.rounds, 'schedules': rows}


def _entry(args: argparse.Namespace, schedule: str, name: str) -> _Entry:
    """Builds the program of a schedule, on as many devices as the base has."""
    import tensorflow as tf

    flags = {**vars(args), 'schedule': schedule}
    if schedule != args.schedule:
        per_device = 2 if schedule in SEVERAL_CELLS_A_DEVICE else 1
        flags.update(num_cells=num_devices_of(args) * per_device, cells_per_device=0)
    network, arrays, params = work_of(argparse.Namespace(**flags))
    batch = {key: tf.constant(value) for key, value in arrays.items()}
    return _Entry(name, build_program(argparse.Namespace(**flags), network, batch, params), batch)


def _row(name: str, clocks: Sequence[Clock], base: Sequence[Clock]) -> dict[str, Any]:
    """Returns the row of a schedule, whose steps are paired with those of the base."""
    ratio, interval = _median(clocks, base, lambda clock: clock.wall_s)
    cpu_ratio, _ = _median(clocks, base, lambda clock: clock.cpu_s)
    return {'schedule': name,
            'step_ms': statistics.median(clock.wall_s for clock in clocks) * 1e3,
            'ratio': ratio,
            'ratio_interval': interval,
            'cpu_ratio': cpu_ratio,
            'page_faults': statistics.median(clock.page_faults for clock in clocks)}


def _median(clocks: Sequence[Clock], base: Sequence[Clock], amount: Callable[[Clock], float]
            ) -> tuple[float, tuple[float, float]]:
    """Returns the median of the ratios of paired steps, and its interval."""
    ratios = sorted(amount(one) / amount(other) for one, other in zip(clocks, base, strict=True))
    return statistics.median(ratios), median_interval(ratios)


def median_interval(ordered: Sequence[float]) -> tuple[float, float]:
    """Returns two of the numbers, between which the median of what they are drawn from lies.

    It does so in 95 of 100 cases, whatever the distribution: the number of draws below the median
    is binomial. With fewer than six numbers, the first and the last are less certain than that.

    Args:
      ordered: ascending.
    """
    n = len(ordered)
    rank = max(0, math.floor((n - 1.96 * math.sqrt(n)) / 2))
    return ordered[rank], ordered[n - 1 - rank]


def text(comparison: dict[str, Any]) -> str:
    """Returns the table."""
    lines = [f'{counted(comparison["rounds"], "round")}; ratios are to {comparison["base"]}, '
             'medians over rounds',
             f'{"schedule":14}{"ms a step":>10}{"ratio":>8}{"95 % interval":>17}{"CPU time":>10}'
             f'{"page faults":>13}']
    for row in comparison['schedules']:
        low, high = row['ratio_interval']
        lines.append(f'{row["schedule"]:14}{row["step_ms"]:10.1f}{row["ratio"]:8.3f}'
                     f'{f"{low:.3f} to {high:.3f}":>17}{row["cpu_ratio"]:10.3f}'
                     f'{row["page_faults"]:13,.0f}')
    return '\n'.join(lines)
