"""Memory: the forecast of a plan beside the peak of the device's allocator.

TensorFlow has no allocator statistics for CPUs. There the growth of the resident memory of the
process is compared with the sum over its devices. It holds TensorFlow's own memory of the step too,
and pages that an earlier program has left are used again without being seen. So only one program is
measured, the first of the process.
"""
from __future__ import annotations

import gc
from collections.abc import Iterator

import tensorflow as tf

from lingpipe import cluster
from lingpipe.pipeline.execution.program import Program
from lingpipe.tools.device_checks import subjects
from lingpipe.tools.device_checks.machine import Machine
from lingpipe.tools.device_checks.rows import Row
from lingpipe.tools.device_checks.subjects import Subject
from lingpipe.tools.pipeline_benchmark import reset_peak, status_mb

MB = 1e6
MODES = ('none', 'cell', 'layer')


def rows(machine: Machine) -> Iterator[Row]:
    """Trains two cells in every mode of recomputation, the last with a limit."""
    if not machine.is_gpu:
        yield machine.row('n/a', 'TensorFlow has no statistics of the allocator of a CPU; the '
                                 'resident memory of the process (RSS) is compared, for one mode')
        small = subjects.transformer(2, 32, 16, 8)   # loads what any program needs
        small.step_s(small.program(machine.devices_of(2), num_cells=2), 1)
        yield _measured(machine, subjects.transformer(4, 256, 64, 32), 'none', 'none')[1]
        return

    subject = subjects.transformer(8, 512, 256, 32)
    yield machine.row('info', f'{subject.name}, K=2, M=4, in MB (10^6 bytes), the highest device:')
    forecasts = {}
    for mode in MODES:
        forecasts[mode], row = _measured(machine, subject, mode, mode)
        yield row
        if machine.is_late:
            return
    limit = (forecasts['none'] + forecasts['layer']) / 2
    yield _measured(machine, subject, 'fit', f'fit, limit {limit / MB:.0f}', limit)[1]


def _measured(machine: Machine, subject: Subject, mode: str, name: str,
              device_bytes: float | None = None) -> tuple[float, Row]:
    """Returns the highest forecast of a device, and the row of a program."""
    gc.collect()
    before = [_used(device) for device in machine.devices_of(2)]
    resident_before_mb = status_mb('VmRSS')
    _reset_peaks(machine)
    program = subject.program(machine.devices_of(2), num_cells=2, num_micro_batches=4,
                              recompute=mode, device_bytes=device_bytes)
    subject.step_s(program, 3)
    forecasts = _forecasts(program, machine.devices_of(2))

    if machine.is_gpu:
        measured = [float(tf.config.experimental.get_memory_info(device[8:])['peak']) - own
                    for device, own in zip(machine.devices_of(2), before, strict=True)]
        pairs = list(zip(forecasts, measured, strict=True))
    else:
        pairs = [(sum(forecasts), (status_mb('VmHWM') - resident_before_mb) * 2**20)]
    forecast, peak = max(pairs, key=lambda pair: pair[1])
    return max(forecasts), machine.row(
        'info', f'{name}: forecast {forecast / MB:.0f}, peak {peak / MB:.0f}, {peak / forecast:.2f}'
                ' times' + ('' if machine.is_gpu else ' (both devices, RSS)'),
        mode=mode, device_bytes=device_bytes, forecast_bytes=[pair[0] for pair in pairs],
        peak_bytes=[pair[1] for pair in pairs], is_resident=not machine.is_gpu)


def _forecasts(program: Program, devices: tuple[str, ...]) -> list[float]:
    by_place = {place[2:]: peak for place, peak in program.plan.peak_bytes().items()}
    return [by_place[cluster.place(device)[2:]] for device in devices]


def _used(device: str) -> float:
    if cluster.place(device)[2] == 'CPU':
        return 0.0
    return float(tf.config.experimental.get_memory_info(device[8:])['current'])


def _reset_peaks(machine: Machine) -> None:
    if machine.is_gpu:
        for device in machine.devices_of(2):
            tf.config.experimental.reset_memory_stats(device[8:])
    else:
        reset_peak()
