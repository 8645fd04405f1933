"""Workers: the cells in processes of their own, beside one process."""
from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from lingpipe.cluster import devices
from lingpipe.cluster.client import Connection
from lingpipe.tools.device_checks import subjects
from lingpipe.tools.device_checks.bits import differing
from lingpipe.tools.device_checks.machine import Machine
from lingpipe.tools.device_checks.rows import Row
from lingpipe.tools.launch_local import Worker, free_addresses

NUM_STEPS = 5
WAIT_S = 60.0


def rows(machine: Machine) -> Iterator[Row]:
    """Trains two cells on two workers; each has the first GPU, or a CPU."""
    flags = ['--devices=gpu:0' if machine.is_gpu else '--devices=cpu:1']
    started = [Worker(address, flags, hangs_after_s=90., out=2) for address in free_addresses(2)]
    try:
        yield from _compared(machine, [worker.address for worker in started])
    finally:
        for worker in started:
            worker.end()


def _compared(machine: Machine, addresses: list[str]) -> Iterator[Row]:
    """Compares bits and time of a step with one cell in this process."""
    wait_s = max(WAIT_S, machine.end_s - time.monotonic())
    names = devices.find(','.join(addresses), 2, wait_s).names
    Connection(addresses, wait_s=wait_s)
    subject = (subjects.transformer(4, 256, 64, 16) if machine.is_gpu
               else subjects.transformer(2, 32, 16, 8))
    own = f'/job:localhost/replica:0/task:0{machine.devices[0]}'
    results = []
    for k, places in ((1, (own,)), (2, names)):
        program = subject.program(places, num_cells=k, num_micro_batches=4, recompute='none')
        times_s = subject.step_s(program, 3 + NUM_STEPS)[3:]
        arrays = {name: variable.numpy() for name, variable in program.variables().items()}
        results.append((statistics.median(times_s), arrays))

    (own_s, expected), (workers_s, found) = results
    different = differing(expected, found)
    same = 'equal bits' if not different else f'{len(different)} of {len(found)} variables differ'
    yield machine.row(
        machine.promised(not different),
        f'{subject.name}: two workers with one cell each ({", ".join(names)}) and one '
        f'cell in this process: {same}; {workers_s * 1e3:.1f} and {own_s * 1e3:.1f} ms a '
        'step', devices=list(names), workers_s=workers_s, own_s=own_s,
        different=different)
