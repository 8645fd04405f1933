"""Decode: gives the task lines and writes what it makes of them, in the same order; only the output is written."""
from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from typing import Any

from lingpipe.cluster.watchdog import Watchdog
from lingpipe.training import logdir


def decode(params: Any, values: Any, lines: list[str], watchdog: Watchdog | None) -> int:
    """Decodes with the newest checkpoint; the devices are set up already."""
    path = values.decode_output
    new = _new(path)
    _check_output(path, new)
    experiment = params.instantiate()
    program, metadata = logdir.restored(experiment, values.logdir)
    if watchdog:
        watchdog.begin(f'decoding with the checkpoint of step {metadata["step"]}')
    found = experiment.task.decode(program, lines, metadata.get('task', {}))
    assert len(found) == len(lines), (len(found), len(lines))
    try:
        with open(new, 'w', encoding='utf-8') if new else contextlib.nullcontext(sys.stdout) as file:
            file.writelines(f'{line}\n' for line in found)
        if new != path:
            os.replace(new, path)
    except BrokenPipeError:   # as in decode | head
        raise
    except OSError as error:
        raise OSError(f'{path or "standard output"} cannot be written: {error}; correct --decode_output.') from error
    return 0


def _new(path: str) -> str:
    """The path that results are written to before they take the place of `path`.

    It is `path` itself where that is '' or something that must not be replaced, as a pipe or /dev/null.
    """
    is_regular = os.path.isfile(path) or not os.path.exists(path)
    return f'{path}.new' if path and is_regular else path


def _check_output(path: str, new: str) -> None:
    """Raises OSError if the results could not be written, which would be known only after an hour of decoding."""
    try:
        if os.path.isdir(path):
            raise OSError('it is a directory')
        if new != path:
            with open(new, 'w', encoding='utf-8'):
                pass
            os.remove(new)
    except OSError as error:
        raise OSError(f'{path} cannot be written: {error}; correct --decode_output.') from error


def read_lines(path: str, is_needed_again: bool = False, line_limit: int | None = None) -> list[str]:
    """The lines of a file, or of standard input, without their ends.

    Args:
      path: '' for standard input.
      is_needed_again: whether standard input can be read once more, by the process that this one may start itself as (recovery.py).
      line_limit: the most characters of a line.

    Raises:
      OSError: it cannot be read.
      ValueError: it is not UTF-8, or a line is too long, as where the ends of lines were lost.
    """
    try:
        if not path:
            content = sys.stdin.buffer.read()
            if is_needed_again:
                _put_back(content)
        else:
            with open(path, 'rb') as file:
                content = file.read()
        lines = content.decode('utf-8-sig').split('\n')   # and at no other character that Unicode calls the end of a line
    except OSError as error:
        raise OSError(f'{path or "standard input"} cannot be read: {error}; correct --decode_input.') from error
    except UnicodeDecodeError as error:
        line = content[:error.start].count(b'\n') + 1
        raise ValueError(f'line {line} of {path or "standard input"} is not UTF-8; convert it, as with iconv -t UTF-8.') from error
    lines = [line.removesuffix('\r') for line in (lines if lines[-1] else lines[:-1])]
    for number, line in enumerate(lines, 1):
        if line_limit is not None and len(line) > line_limit:
            raise ValueError(f'line {number} of {path or "standard input"} has {len(line):,} characters, and --decode_line_limit='
                             f'{line_limit} is the most; split it into sentences, a line each, or raise that flag.')
    return lines


def _put_back(content: bytes) -> None:
    """Makes standard input a file without a name that holds `content`."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        os.dup2(file.fileno(), sys.stdin.fileno())
