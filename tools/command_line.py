"""Command line: what all tools do with flags, errors and a closed pipe.

    @command
    def main(argv: list[str] | None = None) -> None:
        p = parser('bench', __doc__)
        p.add_number('--steps', 10, 'timed steps', least=1)
        p.add_output('--output', '', 'a file; default: print')
        args = p.parse_args(argv)

argparse alone checks no more than the type of each flag. Here numbers have the bounds of a field in
Params, and files are known to be writable before any work is done. Every mistake is one sentence on
stderr.
"""
from __future__ import annotations

import argparse
import contextlib
import functools
import inspect
import math
import os
import pathlib
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, NoReturn, Protocol

from lingpipe.process import closed_pipe
from lingpipe.process.error_text import notes, sentence
from lingpipe.wording.bounds import Bounds
from lingpipe.wording.counts import counted

MAX_CELLS = 1024   # of benchmarks: each cell is a device with a thread of its own
MAX_SIZE = 2**31 - 1   # of a whole number: TensorFlow has 32 bits for most


class Main(Protocol):
    """A tool's main function."""

    def __call__(self, argv: list[str] | None = None) -> None:
        """Runs the tool; `argv` are its flags, by default those of this process."""


def command(main: Main) -> Main:
    """Decorates the main function of a tool: an error ends the process with one sentence."""
    name = pathlib.Path(inspect.getfile(main)).stem   # type: ignore[arg-type]

    @functools.wraps(main)
    def run(argv: list[str] | None = None) -> None:
        """Runs the tool, and exits with a sentence if it fails."""
        closed_pipe.open_standard_files()
        flags = sys.argv[1:] if argv is None else argv
        try:
            with _ended_by_signals():
                code = closed_pipe.ends_quietly(
                    lambda: main(argv) or 0)   # type: ignore[func-returns-value]
        except KeyboardInterrupt:
            print(f'{name}: stopped by Ctrl-C.', file=sys.stderr)
            code = 130
        except _Ended as ended:
            code = ended.args[0]
        except Exception as error:   # experiments and their layers are anyone's code
            if '--traceback' in _own_flags(flags):
                traceback.print_exc()
            is_expected = isinstance(error, ValueError | OSError | ImportError)
            hint = '' if is_expected else ' (--traceback shows where.)'
            may_hold_a_table = type(error) is ValueError
            text = f'{error}{notes(error)}' if may_hold_a_table else sentence(error)
            raise SystemExit(f'{name}: {text}{hint}') from error
        if code:
            raise SystemExit(code)

    return run


class _Ended(BaseException):
    """A signal has come. Only `command` handles it; some code takes a SystemExit for an error.

    Its argument is the exit code.
    """


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP end the block as an error would, so that it removes what it made.

    A signal that somebody ignores, as nohup does, stays ignored.
    """
    def end(number: int, frame: FrameType | None) -> None:
        """Ends the process, once: a second signal would end the cleaning up."""
        signal.signal(number, signal.SIG_IGN)
        raise _Ended(128 + number)

    is_main = threading.current_thread() is threading.main_thread()
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP)
               if is_main and signal.getsignal(number) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _own_flags(flags: Sequence[str]) -> Sequence[str]:
    """Returns the flags before --, which are those of the tool itself."""
    return flags[:flags.index('--')] if '--' in flags else flags


class Parser(argparse.ArgumentParser):
    """An ArgumentParser with flags for numbers and for files that are written."""

    def __init__(self, name: str, text: str | None):
        super().__init__(prog=f'python -m lingpipe.tools.{name}', description=text,
                         formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
        self._name = name
        self._bounds: dict[str, Bounds] = {}
        self._outputs: list[str] = []
        self._folders: list[str] = []
        self.add_argument('--traceback', action='store_true', help='show where an error comes from')

    def add_number(self, flag: str, default: float, help: str = '', **bounds: Any) -> None:
        """Adds a flag for an int or a float, as its default is.

        `bounds` are those of hyperparams.field. No int may be above MAX_SIZE.
        """
        self.add_argument(flag, type=type(default), default=default, help=help)
        self._bounds[flag] = Bounds(**bounds)

    def add_numbers(self, flag: str, default: str, help: str = '', *, count: int | None = None,
                    is_whole: bool = False, **bounds: Any) -> None:
        """Adds a flag for numbers with commas between them, which becomes a tuple of floats.

        `count` says how many numbers there must be, unless there are none; `is_whole`, that they
        have no fractions.
        """
        def numbers(text: str) -> tuple[float, ...]:
            """Parses the text of the flag."""
            parts = text.split(',') if text else []
            if count is not None and len(parts) not in (0, count):
                raise argparse.ArgumentTypeError(f'{text!r} has {counted(len(parts), "number")}, '
                                                 f'not {count}; write them with commas between')
            try:
                values = tuple(map(float, parts))
            except ValueError:
                raise argparse.ArgumentTypeError(f'{text!r} is no list of numbers; write them with '
                                                 'commas between') from None
            if is_whole and any(value % 1 for value in values if math.isfinite(value)):
                raise argparse.ArgumentTypeError(f'{text!r} has a fraction; write whole numbers')
            return values

        self.add_argument(flag, type=numbers, default=numbers(default), help=help)
        self._bounds[flag] = Bounds(**bounds)

    def add_output(self, flag: str, default: str | None, help: str) -> None:
        """Adds a flag for a file that the tool writes; a default of None makes it required."""
        self.add_argument(flag, default=default, required=default is None, help=help)
        self._outputs.append(flag)

    def add_output_folder(self, flag: str, help: str) -> None:
        """Adds a required flag for a folder that the tool makes or fills."""
        self.add_argument(flag, required=True, help=help)
        self._folders.append(flag)

    def parse_args(self, args: Iterable[str] | None = None,   # type: ignore[override]
                   namespace: argparse.Namespace | None = None) -> argparse.Namespace:
        """Returns the flags, checked; a mistake is a sentence on stderr and exit code 2."""
        flags = list(sys.argv[1:] if args is None else args)
        for flag in _own_flags(flags):
            if flag.endswith('=--'):   # argparse would take it for an empty list
                self.error(f'{flag} has no value; write one after =')

        values = super().parse_args(flags, namespace)
        for name, value in vars(values).items():
            if isinstance(value, str):   # A shell leaves the ~ of --output=~/file as it is.
                setattr(values, name, os.path.expanduser(value))
        try:
            for flag, bounds in self._bounds.items():
                _check_numbers(flag, getattr(values, flag[2:]), bounds)
            for flag in self._outputs:
                check_writable(flag, getattr(values, flag[2:]))
            for flag in self._folders:
                check_folder(flag, getattr(values, flag[2:]))
        except ValueError as error:
            self.error(str(error))
        return values

    def error(self, message: str) -> NoReturn:
        """Ends the process with a sentence about its flags."""
        text = ' '.join(message.split()).removesuffix('.')
        print(f'{self._name}: {text}; --help lists all flags.', file=sys.stderr)
        raise SystemExit(2)


def _check_numbers(flag: str, value: object, bounds: Bounds) -> None:
    """Raises ValueError if a flag's number, or one of its numbers, is out of bounds."""
    numbers = {flag: value}
    if isinstance(value, tuple):
        numbers = {f'{flag}[{i}]': number for i, number in enumerate(value)}
    for name, number in numbers.items():
        violation = bounds.violation(number)
        if isinstance(value, int) and not violation:
            violation = Bounds(most=MAX_SIZE).violation(value)
        if violation:
            raise ValueError(f'{name}={number} is {violation[0]}; use {violation[1]}')


def check_writable(flag: str, path: str) -> None:
    """Raises ValueError if a file of this path cannot be written; '' means no file."""
    if not path:
        return
    was_there = os.path.exists(path)
    try:
        with open(path, 'ab'):
            pass
        if not was_there:
            os.remove(path)
    except (OSError, ValueError) as error:   # ValueError: a null character
        reason = getattr(error, 'strerror', None) or error
        raise ValueError(f'{flag}={path} cannot be written: {reason}; name a file in a folder that '
                         'is there') from error


def check_folder(flag: str, path: str) -> None:
    """Raises ValueError if a folder of this path cannot be made or written to."""
    if not path or '\0' in path:
        raise ValueError(f'{flag}={path!r} is no folder; name one')
    existing = os.path.abspath(path)
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        raise ValueError(f'{flag}={path} cannot be a folder: {existing} is a file; name another')
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ValueError(f'{flag}={path} cannot be written: no permission for {existing}; name '
                         'another')


def write(text: str, path: str) -> None:
    """Writes a file; without a path, prints the text."""
    if path:
        pathlib.Path(path).write_text(text, encoding='utf-8')
    else:
        print(text, end='')


def numbers_text(numbers: Sequence[float]) -> str:
    """Returns the text that `Parser.add_numbers` reads as these numbers."""
    return ','.join(map(repr, numbers))
