"""Bits: whether weights after some steps are bitwise identical for every plan.

The first plan, K = 1, is built twice. If even these two differ, then kernels are not deterministic,
and nothing can be said of plans.
"""
from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import numpy as np

from lingpipe.pipeline.planning.layout import num_devices_for
from lingpipe.tools.device_checks import subjects
from lingpipe.tools.device_checks.machine import Machine
from lingpipe.tools.device_checks.rows import Row
from lingpipe.tools.device_checks.subjects import Subject

NUM_STEPS = 3
NUM_MICRO_BATCHES = 4
FIRST = (1, 'gpipe', 'none')
PLANS = (   # K, schedule, recomputation; those that say most come first
    FIRST, (2, '1f1b', 'cell'), (4, 'zb_v', 'none'), (4, 'auto', 'layer'), (2, 'zb_h1', 'fit'),
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
    reference: dict[str, np.ndarray] = {}
    same: list[str] = []
    different: dict[str, dict[str, float]] = {}
    failed: dict[str, str] = {}
    is_interrupted = False
    for number, (k, schedule, recompute) in enumerate((FIRST, *PLANS)):
        if number > 2 and time.monotonic() > end_s:
            is_interrupted = True
            break
        name = f'K={k} {schedule} {recompute}'
        try:
            program = subject.program(
                machine, num_devices_for(schedule, k), num_cells=k, schedule=schedule,
                recompute=recompute, num_micro_batches=NUM_MICRO_BATCHES)
            arrays = subject.arrays_after(program, NUM_STEPS)
        except Exception as error:   # the other plans go on
            if not reference:
                raise
            failed[name] = f'{type(error).__name__}: {str(error).splitlines()[0][:300]}'
            continue
        if not reference:
            reference = arrays
            continue
        difference = differing(reference, arrays)
        if difference:
            different[name] = difference
        else:
            same.append(name)
    if failed:
        name, reason = next(iter(failed.items()))
        return machine.row('FAILED', f'{subject.name}: {len(failed)} plans failed, e.g. {name}: '
                                     f'{reason}', failed=failed, same=same, different=different)
    return _row(machine, subject, len(reference), same, different, is_interrupted)


def differing(expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]
              ) -> dict[str, float]:
    """Returns the largest difference of each variable whose bits differ."""
    return {name: float(np.max(np.abs(np.asarray(value, np.float64) - found[name])))
            for name, value in expected.items() if value.tobytes() != found[name].tobytes()}


def _row(machine: Machine, subject: Subject, num_variables: int, same: list[str],
         different: dict[str, dict[str, float]], is_interrupted: bool) -> Row:
    num_plans = len(same) + len(different)
    numbers = {'subject': subject.name, 'steps': NUM_STEPS, 'variables': num_variables,
               'same': same, 'different': different,
               'plans_left_out': len(PLANS) - num_plans}
    left_out = f' ({len(PLANS) - num_plans} plans left out: time is over)' * is_interrupted
    if not different:
        return machine.row('ok', f'{subject.name}: {num_variables} variables equal after '
                                 f'{NUM_STEPS} steps of {num_plans} plans{left_out}', **numbers)

    plan, variables = next(iter(different.items()))
    first = 'K={} {} {}'.format(*FIRST)
    why = ''
    if first in different:
        why = '; even one plan does not repeat its bits'
    if not machine.is_deterministic:
        why += '; set TF_DETERMINISTIC_OPS=1'
    return machine.row(
        machine.promised(False),
        f'{subject.name}: {len(different)} of {num_plans} plans differ, e.g. {plan} in '
        f'{len(variables)} of {num_variables} variables by up to '
        f'{max(variables.values()):.1e}{why}{left_out}', **numbers)
