"""Faults of a second trainer: one in the same logdir, or one with the same workers."""
from __future__ import annotations

import pathlib
import random
import re
import tempfile
import time

from lingpipe.tools.faults.disturbed_run import DisturbedRun, NotRecoveredError


def two_trainers(run: DisturbedRun, chance: random.Random) -> str:
    """Starts a second trainer while the first runs."""
    if chance.random() < 0.5:
        return _in_the_same_logdir(run)
    return _with_the_same_workers(run)


def _in_the_same_logdir(run: DisturbedRun) -> str:
    """The second trainer must not begin, and the first must not be disturbed."""
    with tempfile.TemporaryFile() as errors:
        second = run.another_trainer(run.logdir, errors.fileno())
        try:
            deadline_s = time.monotonic() + run.limit_s
            while second.poll() is None and time.monotonic() < deadline_s:
                run.wait(0.1)
        finally:
            second.kill()
            code = second.wait()
        errors.seek(0)
        said = errors.read().decode(errors='replace')
    if code != 1 or not re.search(r'^trainer: .* is in use by process \d+', said, re.MULTILINE):
        raise NotRecoveredError(f'a second trainer in the same logdir ended with code {code}: '
                                f'{said[-500:]}')
    return 'in the same logdir'


def _with_the_same_workers(run: DisturbedRun) -> str:
    """The first trainer must say who has the workers. It is started again when they are free."""
    with tempfile.TemporaryDirectory() as logdir, tempfile.TemporaryFile() as errors:
        second = run.another_trainer(pathlib.Path(logdir), errors.fileno())

        def end_second() -> None:
            """Does what the first trainer advises: it waits for the end of the second."""
            second.kill()
            second.wait()

        try:
            endings_before = len(run.endings)
            deadline_s = time.monotonic() + run.limit_s
            with run.expecting('was taken by process', end_second):
                while len(run.endings) == endings_before:
                    run.wait(0.1)
                    if time.monotonic() > deadline_s:
                        raise NotRecoveredError(f'a second trainer has had the workers for '
                                                f'{run.limit_s:g} s, and the first waits')
        finally:
            end_second()
    return 'with the same workers'
