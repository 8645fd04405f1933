"""Running: processes that run checks; one that dies or hangs costs its check, and no other."""
from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Sequence

from lingpipe.process import exit_code
from lingpipe.tools.device_checks import Check
from lingpipe.tools.device_checks.rows import Row

START_S = 120.0    # until TensorFlow is imported and the first check begins
PATIENCE = 2.0     # a check that takes so many times its budget is ended
# For logical GPUs, which share a card and a handle of cuBLAS: it picks other kernels while several
# streams compute, unless its workspaces are fixed ("Results reproducibility" in the manual of
# cuBLAS). Those that the user has chosen stay.
FIXED_WORKSPACES = {'CUBLAS_WORKSPACE_CONFIG': ':4096:8'}
SEEN_ALLOCATOR = {'TF_CPU_ALLOCATOR_USE_BFC': '1'}   # see allocator.py
COMMAND = (sys.executable, '-m', 'lingpipe.tools.device_checks.process')


def run(checks: Sequence[Check], num_devices: int, device_mb: int, time_factor: float,
        command: Sequence[str] = COMMAND) -> Iterator[Row]:
    """Yields the rows of checks as they come.

    Args:
      checks: in their order.
      num_devices, device_mb: as of machine.set_up.
      time_factor: multiplies all budgets.
      command: of the process that runs checks; see process.py.
    """
    for _, together in itertools.groupby(checks, lambda check: check.group):
        left = list(together)
        while left:
            process = _Process(left, num_devices, device_mb, time_factor, command)
            try:
                num_done = yield from process.rows()
            finally:
                process.end()
            left = left[num_done:]


def _environment(check: Check) -> dict[str, str]:
    """The environment of the process that runs a check, and others of its group."""
    return {**(FIXED_WORKSPACES if check.is_deterministic else {}), **os.environ,
            'TF_DETERMINISTIC_OPS': str(int(check.is_deterministic)),
            **(SEEN_ALLOCATOR if check.group == 'memory' else {})}


class _Process:
    """A process that runs some checks."""

    def __init__(self, checks: Sequence[Check], num_devices: int, device_mb: int,
                 time_factor: float, command: Sequence[str]):
        self._checks, self._factor = checks, time_factor
        asked = {'checks': [(check.name, check.budget_s * time_factor) for check in checks],
                 'is_deterministic': checks[0].is_deterministic,
                 'devices': num_devices, 'mb': device_mb}
        self._errors = tempfile.TemporaryFile('w+', errors='replace')
        self._process = subprocess.Popen(
            [*command, json.dumps(asked)],
            stdout=subprocess.PIPE, stderr=self._errors, text=True, process_group=0,
            env=_environment(checks[0]))
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def rows(self) -> Generator[Row, None, int]:
        """Yields rows; returns how many checks are done: all, or those up to one that failed."""
        number, limit_s = 0, START_S * max(1.0, self._factor)
        deadline_s = time.monotonic() + limit_s
        why_late = f'its process did not start within {limit_s:.0f} s'
        while number < len(self._checks):
            name = self._checks[number].name
            try:
                line = self._lines.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except queue.Empty:
                yield Row(name, 'FAILED', f'{why_late}; --time_factor=3 gives all checks more time')
                return number + 1
            if line is None:
                yield Row(name, 'FAILED', f'its process died ({self._code()}): {self._reason()}')
                return number + 1

            message = json.loads(line) if line.startswith('{') else {}
            if 'begins' in message:
                limit_s = PATIENCE * self._checks[number].budget_s * self._factor
                deadline_s = time.monotonic() + limit_s
                why_late = f'ended after {limit_s:.0f} s, twice its budget'
            elif 'row' in message:
                yield Row(**message['row'])
            elif 'ends' in message:
                number += 1
        return number

    def end(self) -> None:
        """Ends the process and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(timeout=5.)   # a worker that is about to end may still hold it
        self._errors.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def _code(self) -> str:
        return exit_code.ending(self._process.wait())

    def _reason(self) -> str:
        """Returns the last line that it wrote to stderr."""
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        return lines[-1][:300] if lines else 'it has not said why'
