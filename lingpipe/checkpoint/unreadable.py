"""Unreadable: what is there and cannot be read, for want of permission, say, is not damaged.

It may be good work, so nothing is renamed or passed over. The obvious `except OSError` takes it for
damage, and os.path.isdir takes it for missing.
"""
from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

# What the system says of a path at which there is nothing.
MISSING = (FileNotFoundError, NotADirectoryError)
NO_FILE = (*MISSING, IsADirectoryError)   # nothing, or a directory


class UnreadableError(OSError):
    """A file or directory may be whole but cannot be read; the message is a sentence for people."""


@contextlib.contextmanager
def reading(path: str, left_out: str = '') -> Iterator[None]:
    """A context in which an OSError that shows no damage becomes an UnreadableError.

    Errors that do show damage stay as they are: those of NO_FILE.

    Args:
      path: what is read.
      left_out: what a person can move away to go on without it; default: `path`.
    """
    try:
        yield
    except (*NO_FILE, UnreadableError):
        raise
    except OSError as error:
        raise UnreadableError(
            f'{path} cannot be read: {error.strerror or error}; it may be whole, so nothing is '
            f'changed: let this process read it and start again, or move {left_out or "it"} away '
            'to go on without it.') from error


def is_directory(path: str) -> bool:
    """Whether a directory is there.

    Raises:
      UnreadableError: that cannot be known.
    """
    try:
        with reading(path):
            return stat.S_ISDIR(os.stat(path).st_mode)
    except MISSING:
        return False


def check_files(folder: str) -> None:
    """Reads all files of a folder to their ends, to learn whether the system lets this process.

    Raises:
      UnreadableError: it does not.
    """
    with contextlib.suppress(*MISSING), reading(folder):
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            with contextlib.suppress(*NO_FILE), reading(path, folder), \
                    open(path, 'rb') as file:
                while file.read(1 << 24):
                    pass
