"""Best record: the file that says which checkpoint is kept for its metric.

A trainer and several watches may write it. So each locks the directory itself, which leaves no
file behind, while it compares and writes.
"""
from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

from lingpipe.checkpoint import files, side_files
from lingpipe.checkpoint.unreadable import NO_FILE, reading

_WAIT_S = 5.   # for the lock of another process, which may have been stopped


class Best(NamedTuple):
    """The best checkpoint.

    Attributes:
      step: of the checkpoint.
      value: of its metric.
      measure: says which metric of what it is; values of different measures cannot be compared.
        '' if the file does not say it.
    """
    step: int
    value: float
    measure: str

    def is_beaten_by(self, value: float, higher_is_better: bool) -> bool:
        """Whether another value of the metric is better."""
        return value > self.value if higher_is_better else value < self.value


class BestRecord:
    """Reads and writes best.json of a directory of checkpoints."""

    def __init__(self, directory: str):
        self._directory = directory
        self._path = os.path.join(directory, 'best.json')

    @contextlib.contextmanager
    def kept_from_others(self) -> Iterator[None]:
        """Lets no other process compare and write in the body, if the system has such locks."""
        descriptor = None
        with contextlib.suppress(OSError):   # The caller's own reading or writing says why.
            descriptor = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if descriptor is not None:
                _lock(descriptor)
            yield
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def read(self) -> Best | None:
        """Returns the best; None if the file is not there or does not name one.

        Raises:
          UnreadableError: the system does not let this process read the file.
        """
        try:
            with reading(self._path), open(self._path, encoding='utf-8') as file:
                best = json.load(file)
            step = best['step']
            value = best['value']
            measure = best.get('measure', '')
        except (*NO_FILE, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        is_right = type(step) is int and type(value) in (int, float) and value == value
        return Best(step, float(value), str(measure)) if is_right else None

    def write(self, best: Best) -> None:
        """Names the best checkpoint."""
        side_files.write_text(self._path, json.dumps(best._asdict()))
        files.sync(self._directory)

    def repair(self) -> None:
        """Sets the file aside if it is damaged; the caller may know the best from elsewhere.

        Raises:
          UnreadableError: the system does not let this process read the file.
        """
        if os.path.lexists(self._path) and self.read() is None:
            side_files.set_aside(self._path, 'it does not name the best checkpoint')


def _lock(descriptor: int) -> None:
    """Locks an open directory, or gives up after _WAIT_S, or if the system cannot lock it."""
    deadline_s = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline_s:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:   # Some kinds of NFS lock no directories.
            return
