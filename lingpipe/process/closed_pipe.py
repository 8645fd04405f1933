"""Closed pipe: standard files without a reader, without room, or that are closed.

A command whose reader has gone, as in `command | head`, ends quietly. A run, a watch or a worker
goes on without its reader, and without a standard file that is closed.

Python raises BrokenPipeError for the next line that is printed, and again when the interpreter
flushes the standard output at its end. The obvious way is to restore the default action of SIGPIPE,
which ends the command. But it would also end a run whose connection breaks while it writes, so the
signal stays ignored.
"""
from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

from lingpipe.process.error_text import reason

EXIT_CODE = 141   # 128 + SIGPIPE, as shells count a command that the signal has ended


def ends_quietly(command: Callable[[], int]) -> int:
    """Runs a command, and returns its exit code, or EXIT_CODE if its standard output has no reader.

    Raises:
      OSError: what is still in the buffer cannot be written, as on a full disk.
      BaseException: whatever else the command raises, SystemExit included, whether anybody reads or
        not.
    """
    try:
        code = command()
        with writing_output():
            _flush()
        return code
    except BrokenPipeError:
        if not _has_no_reader(1):
            raise
        discard_output()
        return EXIT_CODE
    except BaseException:   # it says more than a closed pipe does
        try:
            _flush()
        except OSError:
            discard_output()
        raise


@contextlib.contextmanager
def writing_output() -> Iterator[None]:
    """A context in which an OSError says that the standard output cannot be written.

    All that is printed later is discarded. A BrokenPipeError stays as it is, for `ends_quietly`.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        raise OSError(f'standard output cannot be written: {reason(error)}; make room, or send it '
                      'elsewhere.') from error


def show(text: str, end: str = '\n') -> None:
    """Prints text at once, for a command whose result it is; raises as `writing_output` does."""
    with writing_output():
        print(text, end=end, flush=True)


def open_standard_files() -> None:
    """Opens /dev/null in place of each standard file that is closed, as by 2>&- in a shell.

    Call it first. Otherwise the next file that is opened, such as a lock or a pipe, would get the
    number of standard error, and be taken for it by libraries and by the next process.
    """
    for descriptor, mode in enumerate('rww'):
        try:
            os.fstat(descriptor)
        except OSError:   # The lowest number that is free is taken.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        name = ('stdin', 'stdout', 'stderr')[descriptor]
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, mode, encoding='utf-8', closefd=False))


def say(text: str, out: TextIO) -> None:
    """Prints a line at once, for a process that goes on if `out` has no reader or a full disk."""
    try:
        print(text, file=out, flush=True)
    except OSError:
        discard_output(out.fileno())


def discard_output(descriptor: int = 1) -> None:
    """Discards all that is printed from now on, and what is still in the buffer."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _has_no_reader(descriptor: int) -> bool:
    """Whether a file descriptor is a pipe or a socket whose other end is closed."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
