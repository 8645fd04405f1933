"""Faults of the clock: it is set, most often back, for all processes of the run.

The package libfaketime does it. The monotonic clock goes on, as it does when a real clock is set.
Debian 12 has an older libfaketime, with which time.sleep fails then ("Invalid argument").
"""
from __future__ import annotations

import importlib.util
import pathlib
import random

from lingpipe.tools.faults.disturbed_run import DisturbedRun

_PACKAGE = 'libfaketime'
_LIBRARY = 'vendor/libfaketime/src/libfaketime.so.1'   # in the package's folder
_HOUR_S = 3600


def missing() -> str:
    """Returns why no clock can be set here, or ''."""
    return '' if _library() else f'the package {_PACKAGE} is missing (pip install {_PACKAGE})'


def prefix(path: pathlib.Path) -> tuple[str, ...]:
    """Returns what stands before a command whose clock `clock` sets by the file `path`."""
    _write(path, 0)
    return ('env', f'LD_PRELOAD={_library()}', f'FAKETIME_TIMESTAMP_FILE={path}',
            'FAKETIME_DONT_FAKE_MONOTONIC=1', 'FAKETIME_CACHE_DURATION=1', 'NO_FAKE_STAT=1')


def clock(run: DisturbedRun, chance: random.Random) -> str:
    """Sets the clock by up to 10 days, and leaves it so."""
    hours = chance.choice((-240, -24, -1, 24))
    assert run.place.clock_file is not None
    _write(run.place.clock_file, hours * _HOUR_S)
    run.wait(3.)
    return f'{hours:+} h from the true time'


def _write(path: pathlib.Path, seconds: int) -> None:
    path.write_text(f'{seconds:+}\n')


def _library() -> str:
    """Returns the path of the library, or ''."""
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = pathlib.Path(folder, _LIBRARY)
        if path.exists():
            return str(path)
    return ''
