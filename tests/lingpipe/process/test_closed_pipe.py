"""Closed pipe: a reader that goes away ends a command quietly, and hides no other error."""
from __future__ import annotations

import os
import subprocess
import sys

import pytest

COMMAND = '''
import sys
from lingpipe.process import closed_pipe

def command():
    print('a line that is still in the buffer')
    {end}

sys.exit(closed_pipe.ends_quietly(command))
'''


@pytest.mark.parametrize('end, code, said', [
    ('return 3', 141, ''),
    ("raise SystemExit('the reason')", 1, 'the reason\n'),
])
def test_an_error_is_told_though_nobody_reads_the_output(end, code, said):
    """The error was lost, with exit code 141, if the lines before it could not be written."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        process = subprocess.run([sys.executable, '-c', COMMAND.format(end=end)], stdout=writer,
                                 stderr=subprocess.PIPE, env={**os.environ, 'PYTHONUNBUFFERED': ''},
                                 text=True, check=False)
    finally:
        os.close(writer)
    assert (process.returncode, process.stderr) == (code, said)


CLOSED = '''
import os, sys
from lingpipe.process import closed_pipe
closed_pipe.open_standard_files()
print('nobody reads this', file=sys.stderr, flush=True)
lock = os.open('/', os.O_RDONLY)
os.execvp('readlink', ['readlink', '/proc/self/fd/0', '/proc/self/fd/2'])
'''


def test_standard_files_that_are_closed_lead_nowhere_also_in_the_next_process():
    """A lock or a pipe got the number 2, and the process that took the place lost it."""
    process = subprocess.run(['sh', '-c', 'exec 0<&- 2>&-; exec "$@"', '-', sys.executable, '-c',
                              CLOSED], stdout=subprocess.PIPE, text=True, check=False)
    assert process.stdout == '/dev/null\n/dev/null\n'
