"""Device checks: what tools.check_devices runs, one file a check.

    rows.py         what a check reports
    machine.py      the devices: GPUs, or parts of one GPU, or parts of the CPU
    subjects.py     the small networks that are trained
    bits.py         whether weights depend on K, schedules and recomputation
    kernels.py      which kernels are not deterministic
    overlap.py      whether devices work at the same time
    transfers.py    latency and bandwidth between devices
    stamps.py       whether the stamps of a timeline are the time of the device
    memory.py       the forecast of memory beside the allocator's peak
    allocator.py    what a device's allocator has given out
    collectives.py  sums over replicas
    workers.py      cells in processes of their own
    running.py      processes that run checks, and what becomes of one that dies or hangs
    process.py      such a process

This file and running.py do without TensorFlow, so that a fault in it cannot end the tool.
"""
from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Check:
    """A check.

    Attributes:
      name: of the flag --checks.
      budget_s: about how long it may take; it is ended when it takes more than twice as long.
      is_deterministic: whether TensorFlow's op determinism is on.
      group: the checks of one group share a process.
    """
    name: str
    budget_s: float
    is_deterministic: bool = False
    group: str = 'plain'

    @property
    def module(self) -> str:
        """The name of its file in this folder."""
        return self.name.removesuffix('_deterministic')


CHECKS = (
    Check('machine', 30., True, 'deterministic'),
    Check('bits_deterministic', 60., True, 'deterministic'),
    Check('kernels_deterministic', 10., True, 'deterministic'),
    Check('collectives', 20., True, 'deterministic'),
    Check('kernels', 10.),
    Check('overlap', 20.),
    Check('transfers', 10.),
    Check('stamps', 20.),
    Check('bits', 20.),
    Check('memory', 30., group='memory'),
    Check('workers', 45., True, 'workers'),
)


def find(names: str) -> tuple[Check, ...]:
    """Returns the checks of a list such as 'bits,overlap'; bits and kernels stand for two each.

    Raises:
      ValueError: a name is unknown.
    """
    modules = list(dict.fromkeys(check.module for check in CHECKS))
    known = [*modules, *(check.name for check in CHECKS if check.name not in modules)]
    wanted = names.split(',')
    for name in wanted:
        if name not in known:
            raise ValueError(f'--checks has {name!r}; write names with commas between: '
                             f'{",".join(known)}')
    return tuple(check for check in CHECKS if check.name in wanted or check.module in wanted)
