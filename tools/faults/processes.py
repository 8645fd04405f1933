"""Faults of processes: they are killed, stopped, slowed, short of memory, or told to stop."""
from __future__ import annotations

import contextlib
import os
import pathlib
import random
import resource
import signal
import time

from lingpipe.tools.faults.disturbed_run import EVERY_STEPS, DisturbedRun

_PERIOD_S = 0.1   # of a process that is slowed by stopping it again and again
_SPARE_BYTES = 4 << 20   # what a process may still take that is short of memory


def kill(run: DisturbedRun, chance: random.Random) -> str:
    """Kills a process with SIGKILL."""
    name, pid = _drawn(run, chance)
    _send(pid, signal.SIGKILL)
    return name


def away(run: DisturbedRun, chance: random.Random) -> str:
    """Kills a worker that comes back only when the run has gone on without it."""
    number = chance.randrange(len(run.workers))
    seconds = chance.uniform(0., 20.)
    with run.without_worker(number):
        run.wait_for_checkpoint(run.newest())
        run.wait(seconds)
    return f'worker {number}, until {seconds:.1f} s after the run went on without it'


def stop(run: DisturbedRun, chance: random.Random) -> str:
    """Stops a process for 4 or 25 seconds, or a worker's server until somebody kills it."""
    seconds = chance.choice((4, 25, None))
    name, pid = _drawn(run, chance, only_servers=seconds is None)
    _send(pid, signal.SIGSTOP)
    if seconds is None:
        return f'{name} for good'

    # It may be killed meanwhile, and is then started again.
    run.wait(seconds)
    _send(pid, signal.SIGCONT)
    return f'{name} for {seconds} s'


def slow(run: DisturbedRun, chance: random.Random) -> str:
    """Slows a process for some seconds: it is stopped for most of each tenth of a second."""
    factor = chance.choice((2, 4, 10))
    seconds = chance.uniform(4., 10.)
    name, pid = _drawn(run, chance)
    deadline_s = time.monotonic() + seconds
    while time.monotonic() < deadline_s:
        _send(pid, signal.SIGSTOP)
        time.sleep(_PERIOD_S * (factor - 1) / factor)
        _send(pid, signal.SIGCONT)
        time.sleep(_PERIOD_S / factor)
        run.look()
    return f'{name} by {factor} for {seconds:.1f} s'


def memory(run: DisturbedRun, chance: random.Random) -> str:
    """Lets a process take no more memory than it has, for some seconds or until it has ended.

    What it asks for beyond is refused by the kernel (RLIMIT_AS), as on a machine that does not
    overcommit. Where the kernel kills a process instead, that is the fault `kill`.
    """
    seconds = chance.uniform(2., 8.)
    name, pid = _drawn(run, chance)
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        pages = int(pathlib.Path(f'/proc/{pid}/statm').read_text().split()[0])
        before = resource.prlimit(pid, resource.RLIMIT_AS)
        limit = pages * resource.getpagesize() + _SPARE_BYTES
        resource.prlimit(pid, resource.RLIMIT_AS, (limit, before[1]))
        with run.expecting("(?i)memory|can't start new thread"):   # a thread needs a stack
            run.wait(seconds)
        resource.prlimit(pid, resource.RLIMIT_AS, before)
    return f'{name} for {seconds:.1f} s'


def sigterm(run: DisturbedRun, chance: random.Random) -> str:
    """Stops the trainer by SIGTERM: soon after a start, in the middle, or at the last step."""
    when = chance.choice(('at the start', 'in the middle', 'at the end'))
    if when == 'at the start':
        run.kill_trainer()
        run.start_trainer()
        seconds = chance.uniform(0., 12.)
        run.wait(seconds)
        when = f'{seconds:.1f} s after the start'
    elif when == 'at the end':
        run.stop_trainer()
        last_step = run.newest() + 4 * EVERY_STEPS
        run.start_trainer(last_step)
        while run.newest() < last_step - EVERY_STEPS and run.trainer.poll() is None:
            run.look_at_workers()
            time.sleep(0.01)
        time.sleep(chance.uniform(0., 1.5))
    code = run.stop_trainer()
    run.start_trainer()
    return f'{when}; exit code {code}'


def _drawn(run: DisturbedRun, chance: random.Random, only_servers: bool = False
           ) -> tuple[str, int]:
    """Returns the name and the process id of a process."""
    number = chance.randrange(len(run.workers))
    kind = 'server' if only_servers else chance.choice(('server', 'server', 'worker', 'trainer'))
    if kind == 'trainer':
        return kind, run.trainer.pid
    above = run.workers[number].process.pid
    return f'{kind} {number}', _child(above) if kind == 'server' else above


def _child(pid: int) -> int:
    """Returns the child of a worker's process, its server; the process itself if it has none."""
    with contextlib.suppress(OSError):
        children = pathlib.Path(f'/proc/{pid}/task/{pid}/children').read_text().split()
        return int(children[0]) if children else pid
    return pid


def _send(pid: int, number: signal.Signals) -> None:
    """Sends a signal to a process, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
