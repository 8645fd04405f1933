"""Whoever uses the fork server has its modules imported."""
from __future__ import annotations

import subprocess
import sys

_PROGRAM = '''
import sys
from lingpipe.process import fork_server

def imported(connection):
    connection.send([name for name in ('colorsys', 'wave') if name in sys.modules])

if __name__ == '__main__':
    context = fork_server.context('colorsys')
    fork_server.context('wave')
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=imported, args=(writer,))
    process.start()
    print(reader.recv())
    process.join()
'''


def test_the_modules_of_two_users_are_imported(tmp_path):
    """Those of the second replaced those of the first."""
    (tmp_path / 'program.py').write_text(_PROGRAM)
    done = subprocess.run([sys.executable, 'program.py'], cwd=tmp_path, capture_output=True,
                          text=True, check=True)
    assert done.stdout == "['colorsys', 'wave']\n"
