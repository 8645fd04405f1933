"""Line input: the lines that a command reads from a file or from standard input."""
from __future__ import annotations

import os
import sys
import tempfile

from lingpipe.process.error_text import reason
from lingpipe.wording.counts import counted


def read_lines(path: str, is_needed_again: bool = False,
               line_limit: int | None = None) -> list[str]:
    """The lines of a file, or of standard input, without their ends.

    Args:
      path: '' for standard input.
      is_needed_again: whether standard input can be read once more, by the process that may take
        this one's place (recovery.py).
      line_limit: the most characters of a line.

    Raises:
      OSError: it cannot be read.
      ValueError: it is not UTF-8, or a line is too long, as where the ends of lines were lost.
    """
    source = path or 'standard input'
    try:
        content = _read_bytes(path, is_needed_again)
    except OSError as error:
        raise OSError(f'{source} cannot be read: {reason(error)}; correct '
                      '--decode_input.') from error

    try:
        # Lines end at no other character that Unicode calls the end of a line.
        lines = content.decode('utf-8-sig').split('\n')
    except UnicodeDecodeError as error:
        number = content[:error.start].count(b'\n') + 1
        raise ValueError(f'line {number} of {source} is not UTF-8; convert it, as with iconv -t '
                         f'UTF-8.') from error
    if not lines[-1]:
        lines.pop()   # what follows the end of the last line
    lines = [line.removesuffix('\r') for line in lines]

    for number, line in enumerate(lines, 1):
        if line_limit is not None and len(line) > line_limit:
            raise ValueError(
                f'line {number} of {source} has {counted(len(line), "character")}, and '
                f'--decode_line_limit={line_limit} is the most; split it into sentences, a line '
                'each, or raise that flag.')
    return lines


def _read_bytes(path: str, is_needed_again: bool) -> bytes:
    """What a file holds, or standard input for ''."""
    if path:
        with open(path, 'rb') as file:
            return file.read()
    content = sys.stdin.buffer.read()
    if is_needed_again:
        _put_back(content)
    return content


def _put_back(content: bytes) -> None:
    """Makes standard input a file without a name that holds `content`."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        os.dup2(file.fileno(), sys.stdin.fileno())
