"""Side files: what a logdir holds besides its checkpoints.

A run goes on whatever stands in the place of such a file. What is damaged or in the way is renamed
to NAME.bad, so that nothing is lost, and a warning says so. Warnings go to stderr and, within
`warnings_into`, also to the log of the run.
"""
from __future__ import annotations

import contextlib
import logging as standard_logging
import os
import stat
import threading
from collections.abc import Iterator

from absl import logging

from lingpipe.checkpoint.unreadable import is_directory


def free_name(path: str) -> str:
    """Returns the path if nothing is there, or else the first free one of PATH-2, PATH-3, ..."""
    name = path
    number = 1
    while os.path.lexists(name):
        number += 1
        name = f'{path}-{number}'
    return name


def set_aside(path: str, why: str) -> None:
    """Renames what is at a path to PATH.bad and warns. If it cannot, the warning says so.

    Args:
      path: a file or a directory.
      why: what is wrong with it, as in 'it is a directory'.
    """
    new = free_name(f'{path}.bad')
    try:
        os.replace(path, new)
    except OSError as error:
        logging.warning('%s cannot be used: %s; nor can it be renamed: %s', path, why,
                        error.strerror)
    else:
        logging.warning('%s cannot be used: %s; it is now %s', path, why, os.path.basename(new))


def make_way_for_file(path: str) -> None:
    """Sets aside what is not a file but stands where one is to be written.

    It may be a directory, a pipe, or a link to nowhere.

    Raises:
      UnreadableError: a link leads to a place that this process may not look at.
    """
    if os.path.islink(path) and not is_directory(os.path.dirname(os.path.realpath(path))):
        set_aside(path, 'it is a link to a place that does not exist')
    with contextlib.suppress(OSError):
        mode = os.stat(path).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):   # /dev/null is a character device
            set_aside(path, 'it is a directory' if stat.S_ISDIR(mode) else 'it is no file')


def make_way(path: str) -> None:
    """Sets aside whatever is at a path where a checkpoint is to be put."""
    if os.path.lexists(path):
        set_aside(path, 'it is in the way of a checkpoint')


def make_directory(path: str) -> None:
    """Makes a directory and those above it; sets aside a file that is there.

    Raises:
      OSError: it cannot be made.
    """
    try:
        is_in_the_way = stat.S_ISREG(os.stat(path).st_mode)   # a device such as /dev/null stays
    except FileNotFoundError:
        is_in_the_way = os.path.islink(path)   # to nowhere
    if is_in_the_way:
        set_aside(path, 'it is not a directory')
    os.makedirs(path, exist_ok=True)


def write_text(path: str, text: str) -> None:
    """Replaces a file as a whole.

    Raises:
      OSError: it cannot be written; what was there before still is.
    """
    new = f'{path}.new'
    with contextlib.suppress(OSError):
        os.remove(new)   # a kill may have left it
    make_way_for_file(path)
    make_way_for_file(new)
    with open(new, 'w', encoding='utf-8') as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def end_last_line(path: str) -> None:
    """Ends the last line of a file if a kill cut it short, so that appended text starts a new line.

    Raises:
      OSError: the file cannot be written.
    """
    with open(path, 'a+b') as file:
        if not file.tell():
            return
        file.seek(-1, os.SEEK_END)
        if file.read() != b'\n':
            file.write(b'\n')


@contextlib.contextmanager
def warnings_into(path: str) -> Iterator[None]:
    """Appends all warnings of this package within it to a file too, if the file can be written.

    Those of a thread that is within another such context belong to the run there.
    """
    handler = _Appender(path)
    logger = logging.get_absl_logger()
    logger.addHandler(handler)
    try:
        make_way_for_file(path)
        yield
    finally:
        logger.removeHandler(handler)


class _Appender(standard_logging.Handler):
    """Appends warnings to a file, which it opens for each, since the file may be set aside."""

    def __init__(self, path: str):
        super().__init__(standard_logging.WARNING)
        self._path, self._thread = path, threading.get_ident()

    def emit(self, record: standard_logging.LogRecord) -> None:
        """Appends a warning, unless its thread is within another such context."""
        owners = {handler._thread for handler in logging.get_absl_logger().handlers
                  if isinstance(handler, _Appender)}
        if record.thread in owners - {self._thread}:
            return
        with contextlib.suppress(OSError):
            end_last_line(self._path)
            with open(self._path, 'a', encoding='utf-8', errors='replace') as file:
                file.write(f'warning: {record.getMessage()}\n')
