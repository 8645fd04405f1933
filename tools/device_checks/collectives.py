"""Collectives: the sums of gradients over replicas, by plain additions, TensorFlow's ring and NCCL.
"""
from __future__ import annotations

import statistics
from collections.abc import Iterator

import numpy as np

from lingpipe.tools.device_checks import subjects
from lingpipe.tools.device_checks.bits import differing
from lingpipe.tools.device_checks.machine import Machine
from lingpipe.tools.device_checks.rows import Row

NUM_STEPS = 5


def rows(machine: Machine) -> Iterator[Row]:
    """Trains two replicas with every kind of sum, and compares their bits with plain additions."""
    subject = (subjects.transformer(4, 256, 64, 16) if machine.is_gpu
               else subjects.transformer(2, 32, 16, 8))
    added: dict[str, np.ndarray] | None = None   # the variables after plain additions
    for reduction in ('add', 'ring', 'nccl'):
        if reduction == 'nccl' and machine.num_physical < 2:
            yield machine.row('n/a', 'nccl: ' + (
                'NCCL refuses several logical GPUs of one card, and there is one card'
                if machine.is_gpu else 'NCCL adds up on GPUs only, and there is none'))
            continue
        devices_of_card = len(machine.devices) // machine.num_physical
        devices = (machine.devices[::devices_of_card][:2] if reduction == 'nccl'
                   else machine.devices_of(2))
        try:
            program = subject.program(devices, num_replicas=2, num_micro_batches=2,
                                      replica_reduction=reduction)
            times_s = subject.step_s(program, 3 + NUM_STEPS)[3:]
            program.check_replicas()
        except Exception as error:
            yield machine.row('FAILED', f'{reduction}: {type(error).__name__}: '
                                        f'{str(error).splitlines()[0]}')
            continue
        arrays = {name: variable.numpy() for name, variable in program.variables().items()}
        if reduction == 'add':
            added = arrays
        different = differing(arrays if added is None else added, arrays)
        same = (f'{len(different)} differ from plain additions' if different else
                'not compared, since plain additions failed' if added is None else
                'equal to plain additions')
        yield machine.row(
            machine.promised(not different),
            f'{reduction}: replicas are equal to the last bit; {len(arrays)} variables '
            f'{same}; {statistics.median(times_s) * 1e3:.1f} ms a step',
            reduction=reduction, step_s=statistics.median(times_s), different=different)
