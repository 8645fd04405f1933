"""Logdir lock: one trainer at a time writes to a logdir, and others can learn who that is.

The lock is flock(2)'s on LOGDIR/lock: the kernel, or an NFS server, takes it back when its owner is
dead, however it died. The text of the file says who took it last. A trainer that starts its own
process again hands the open file on and never lets go of the lock. Evaluating and decoding need no
lock, since they read checkpoints that are never changed.

Python's fcntl is called directly. The locks of portalocker and filelock open the file themselves,
so they cannot take over the one that the program before has left open and locked.
"""
from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import time
from collections.abc import Iterator

from absl import logging

from lingpipe.checkpoint import side_files
from lingpipe.checkpoint.unreadable import MISSING, reading
from lingpipe.process import environment
from lingpipe.process.error_text import reason
from lingpipe.process.process_name import this_process

# Environment variable: the number of the open file, for the next program of this process.
_KEPT = 'LINGPIPE_LOGDIR_LOCK'
_WAIT_S = 2.   # how long to wait for an owner that was killed a moment ago


@dataclasses.dataclass
class Lock:
    """A lock that is held.

    Attributes:
      path: of the file.
      number: the number of the open file; None on a file system without locks.
    """
    path: str
    number: int | None

    def is_lost(self) -> bool:
        """Whether the file is gone, or another one is there; False while that cannot be known."""
        if self.number is None:
            return False
        try:
            file_there = os.stat(self.path)
        except MISSING:
            return True
        except OSError:   # such as EIO of a network file system that is away for a moment
            return False
        try:
            return not os.path.samestat(os.fstat(self.number), file_there)
        except OSError:   # such as ESTALE of a file that was removed
            return True

    def take_again(self) -> None:
        """Takes the lock of a logdir that was removed, moved or replaced, and makes it if need be.

        Raises:
          ValueError: another run has it.
          OSError: it cannot be made.
        """
        logdir = os.path.dirname(self.path)
        was_there = os.path.isdir(logdir)
        _make(logdir)
        try:
            before, self.number = self.number, _acquired(self.path)
        except OSError as error:
            raise ValueError(f'the lock of this run in {logdir} was removed or replaced, and now '
                             f'{error} This run ends, so that it overwrites nothing.') from error
        if before is not None:
            os.close(before)
        logging.warning(
            'the lock of this run in %s was removed or replaced; it is taken again' if was_there
            else '%s was removed or moved while this run wrote there; it was made again, empty, '
            'for the next checkpoint', logdir)

    def keep(self) -> None:
        """Keeps the lock for the next program of this process, if it holds the same logdir."""
        if self.number is not None:
            os.set_inheritable(self.number, True)
            environment.leave(_KEPT, str(self.number))


@contextlib.contextmanager
def hold(logdir: str) -> Iterator[Lock]:
    """Holds the lock of a logdir, which is made if need be.

    On a file system without locks, it logs a warning and holds none.

    Raises:
      OSError: another process holds it, or the logdir cannot be made.
    """
    path = os.path.join(logdir, 'lock')
    _make(logdir)
    side_files.make_way_for_file(path)
    number = _kept(path)
    if number is None:
        number = _acquired(path)
    lock = Lock(path, number)
    try:
        yield lock
    finally:
        if lock.number is not None:
            os.close(lock.number)


def _make(logdir: str) -> None:
    try:
        os.makedirs(logdir, exist_ok=True)
    except OSError as error:
        raise OSError(f'{logdir} cannot be written: {reason(error)}; choose another '
                      'logdir.') from error


def is_held(logdir: str) -> bool:
    """Whether a trainer holds the lock of a logdir, as far as one can know.

    The lock is taken for a moment if it is free. A trainer that starts just then tries again.

    Raises:
      UnreadableError: the system does not let this process open the file.
    """
    path = os.path.join(logdir, 'lock')
    try:
        with reading(path):
            number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except MISSING:
        return False
    try:
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:   # somebody has it, or the file system has no locks
        return True
    finally:
        os.close(number)


def _kept(path: str) -> int | None:
    """Returns the open file that the process's last program has kept, if it is that of `path`."""
    try:
        number = int(environment.take(_KEPT))
        if not os.path.samestat(os.fstat(number), os.stat(path)):
            return None
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)   # which it has already
    except (OSError, ValueError):
        return None
    os.set_inheritable(number, False)
    return number


def _acquired(path: str) -> int | None:
    """Opens and locks the file, and returns its number; None if there can be no lock."""
    number = None
    try:
        number = _opened(path)
        is_ours = _is_locked_in_time(number)
    except OSError as error:
        logging.warning('%s cannot be locked (%s): nothing keeps another trainer from writing '
                        'there.', path, error.strerror or error)
        if number is not None:
            os.close(number)
        return None

    if not is_ours:
        owner = _owner(number)
        os.close(number)
        if owner == this_process():
            raise OSError(f'{os.path.dirname(path)} is in use by another run of this process, and '
                          'only one at a time can write there; close that one with run.close(), or '
                          'choose another logdir.')
        raise OSError(f'{os.path.dirname(path)} is in use by {owner or "another process"}, and '
                      'only one trainer at a time can write there; wait for that one or stop it, '
                      'or choose another logdir.')
    with contextlib.suppress(OSError):   # as on a full disk
        os.ftruncate(number, 0)
        os.pwrite(number, f'{this_process()}\n'.encode(), 0)
    return number


def _opened(path: str) -> int:
    """Opens the file, for reading alone if it belongs to a user who lets others only read it."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except PermissionError:
        with contextlib.suppress(OSError):
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        raise


def _owner(number: int) -> str:
    """The name of the process that has taken the lock last, or ''."""
    return os.pread(number, 1000, 0).decode(errors='replace').strip()


def _is_locked_in_time(number: int) -> bool:
    """Locks an open file; returns False if its owner still holds it after _WAIT_S.

    This process is not waited for.

    Raises:
      OSError: the file cannot be locked at all.
    """
    deadline_s = time.monotonic() + _WAIT_S
    while True:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline_s or _owner(number) == this_process():
                return False
            time.sleep(0.1)
