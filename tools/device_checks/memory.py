"""Memory: the forecast of a plan beside the peak of the device's allocator."""
from __future__ import annotations

import gc
from collections.abc import Iterator

from lingpipe import cluster
from lingpipe.tools.device_checks import subjects
from lingpipe.tools.device_checks.allocator import bytes_in_use, most_bytes
from lingpipe.tools.device_checks.machine import Machine
from lingpipe.tools.device_checks.rows import Row
from lingpipe.tools.device_checks.subjects import Subject

MB = 1e6
MODES = ('none', 'cell', 'layer')


def rows(machine: Machine) -> Iterator[Row]:
    """Trains two cells in every mode of recomputation, the last with a limit."""
    if machine.is_gpu:
        subject, devices = subjects.transformer(8, 512, 256, 32), machine.devices_of(2)
    else:
        # All CPUs have one allocator: on two of them, the peaks of two cells could come together.
        subject, devices = subjects.transformer(8, 128, 128, 32), machine.devices_of(1) * 2
    where = 'the highest device' if machine.is_gpu else 'both cells on one device'
    yield machine.row('info', f'{subject.name}, K=2, M=4, in MB (10^6 bytes), {where}; a layer '
                              'needs the second number while it runs:')
    forecasts = {}
    for mode in MODES:
        forecasts[mode], row = _measured(machine, subject, devices, mode, mode)
        yield row
        if machine.is_late:
            return
    limit = (forecasts['none'] + forecasts['layer']) / 2
    yield _measured(machine, subject, devices, 'fit', f'fit, limit {limit / MB:.0f}', limit)[1]


def _measured(machine: Machine, subject: Subject, devices: tuple[str, ...], mode: str, name: str,
              device_bytes: float | None = None) -> tuple[float, Row]:
    """Returns the highest forecast of a device, and the row of a program."""
    gc.collect()
    distinct = list(dict.fromkeys(devices))
    before = [bytes_in_use(device) for device in distinct]
    program = subject.program(devices, num_cells=2, num_micro_batches=4, recompute=mode,
                              device_bytes=device_bytes)
    subject.step_s(program, 2)
    peaks = [most_bytes(lambda: subject.step_s(program, 1, 2), device) - own
             for device, own in zip(distinct, before, strict=True)]

    forecasts, temporaries = (
        {place[2:]: num_bytes for place, num_bytes in by_place.items()}
        for by_place in (program.plan.peak_bytes(), program.plan.temporary_bytes()))
    places = [cluster.place(device)[2:] for device in distinct]
    peak, place = max(zip(peaks, places, strict=True))
    forecast, temporary = forecasts[place], temporaries[place]
    ratio = peak / (forecast + temporary)
    return max(forecasts.values()), machine.row(
        'info', f'{name}: forecast {forecast / MB:.0f} and {temporary / MB:.0f}, peak '
                f'{peak / MB:.0f}, {ratio:.2f} times',
        mode=mode, device_bytes=device_bytes, forecast_bytes=forecast, temporary_bytes=temporary,
        peak_bytes=peak, ratio=ratio)
