"""Bits: whether weights after some steps are bitwise identical for every plan.

The first plan, K = 1, is built twice. If even these two differ, kernels are not deterministic, and
nothing can be said of plans. A plan that differs is repeated too, which tells a kernel that depends
on what runs beside it from a plan that computes something else.
"""
from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from lingpipe.pipeline.planning.layout import num_devices_for
from lingpipe.tools.device_checks import subjects
from lingpipe.tools.device_checks.kernels import SETTING
from lingpipe.tools.device_checks.machine import Machine
from lingpipe.tools.device_checks.rows import Row
from lingpipe.tools.device_checks.subjects import Subject
from lingpipe.wording.counts import counted

NUM_STEPS = 3
NUM_MICRO_BATCHES = 4
Plan: TypeAlias = tuple[int, str, str]   # K, schedule, recomputation
FIRST: Plan = (1, 'gpipe', 'none')
PLANS: tuple[Plan, ...] = (   # those that say most come first
    (2, '1f1b', 'cell'), (4, 'zb_v', 'none'), (4, 'auto', 'layer'), (2, 'zb_h1', 'fit'),
    (4, 'gpipe', 'layer'), (4, 'zb_h2', 'cell'), (4, 'interleaved', 'none'), (4, 'v_half', 'layer'),
    (4, 'v_min', 'none'), (4, 'dual_pipe_v', 'cell'), (1, '1f1b', 'layer'))


def rows(machine: Machine) -> Iterator[Row]:
    """Compares the plans of both networks."""
    if machine.is_gpu:
        both = (subjects.transformer(4, 256, 64, 16), subjects.convolutions(4, 64, 32, 32))
    else:
        both = (subjects.transformer(4, 32, 16, 8), subjects.convolutions(3, 8, 16, 8))
    for i, subject in enumerate(both):
        share_s = (machine.end_s - time.monotonic()) / (len(both) - i)
        yield compared(machine, subject, time.monotonic() + share_s)


def compared(machine: Machine, subject: Subject, end_s: float) -> Row:
    """Compares as many plans of a network as the time allows, at least one."""
    expected = _arrays(machine, subject, FIRST)
    repeated = differing(expected, _arrays(machine, subject, FIRST))
    if repeated:
        return machine.row(
            machine.promised(False),
            f'{subject.name}: one cell does not repeat its own bits, {_how(repeated, expected)}; '
            'so plans are not compared' + _remedy(machine),
            subject=subject.name, repeated=repeated)

    differences: dict[str, dict[str, float]] = {}   # plan -> variables; none if they are equal
    unrepeated: list[str] = []   # plans that differ, and that do not repeat their own bits
    failed: dict[str, str] = {}
    for plan in PLANS:
        if differences and time.monotonic() > end_s:
            break
        name = 'K={} {} {}'.format(*plan)
        try:
            arrays = _arrays(machine, subject, plan)
            different = differing(expected, arrays)
            if different and differing(arrays, _arrays(machine, subject, plan)):
                unrepeated.append(name)
            differences[name] = different
        except Exception as error:   # the other plans go on
            failed[name] = f'{type(error).__name__}: {(str(error) or "?").splitlines()[0][:300]}'
    return _row(machine, subject, expected, differences, unrepeated, failed)


def _arrays(machine: Machine, subject: Subject, plan: Plan) -> dict[str, np.ndarray]:
    """Returns all variables after some steps of a plan."""
    k, schedule, recompute = plan
    program = subject.program(
        machine.devices_of(num_devices_for(schedule, k)), num_cells=k, schedule=schedule,
        recompute=recompute, num_micro_batches=NUM_MICRO_BATCHES)
    return subject.arrays_after(program, NUM_STEPS)


def differing(expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]
              ) -> dict[str, float]:
    """Returns the largest difference of each variable whose bits differ."""
    return {name: float(np.max(np.abs(np.asarray(value, np.float64) - found[name])))
            for name, value in expected.items() if value.tobytes() != found[name].tobytes()}


def _row(machine: Machine, subject: Subject, expected: Mapping[str, np.ndarray],
         differences: Mapping[str, dict[str, float]], unrepeated: Sequence[str],
         failed: Mapping[str, str]) -> Row:
    """Returns the row of plans that were compared with the first one."""
    broken = {name: variables for name, variables in differences.items() if variables}
    num_plans = len(differences)
    num_left_out = len(PLANS) - num_plans - len(failed)
    numbers = {'subject': subject.name, 'steps': NUM_STEPS, 'variables': len(expected),
               'same': [name for name in differences if name not in broken],
               'different': broken, 'unrepeated': unrepeated, 'failed': failed,
               'plans_left_out': num_left_out}
    end = f' ({counted(num_left_out, "plan")} left out: time is over)' if num_left_out else ''
    if failed:
        name, reason = next(iter(failed.items()))
        end += f'; {counted(len(failed), "plan")} failed, e.g. {name}: {reason}'

    if not broken:
        return machine.row(
            'FAILED' if failed else 'ok',
            f'{subject.name}: {len(expected)} variables equal after {NUM_STEPS} steps of one cell '
            f'and of {num_plans} other plans{end}', **numbers)
    name, variables = next(iter(broken.items()))
    again = ('does not repeat its own bits' if name in unrepeated else 'repeats its own bits')
    return machine.row(
        machine.promised(False),
        f'{subject.name}: {len(broken)} of {num_plans} plans differ from one cell, e.g. {name} '
        f'{_how(variables, expected)}, and {again}{_remedy(machine)}{end}', **numbers)


def _how(variables: Mapping[str, float], expected: Mapping[str, np.ndarray]) -> str:
    return (f'in {len(variables)} of {len(expected)} variables by up to '
            f'{max(variables.values()):.1e}')


def _remedy(machine: Machine) -> str:
    return '' if machine.is_deterministic else f'; set {SETTING}'
