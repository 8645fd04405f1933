"""Process name: what this process is called where it holds a logdir or workers, for others to read.

The name must stay the same when the process starts itself again (commands/recovery.py), so it is
handed on in the environment. psutil's create_time would not do: it adds the time of the boot, which
moves when the clock is set, so that a process could take itself for another one.
"""
from __future__ import annotations

import os
import socket
import time

from lingpipe.process import environment

_NAME = 'LINGPIPE_PROCESS'   # environment variable


def this_process() -> str:
    """Returns 'process 123 on HOST since 2026-01-31 12:00:00'.

    It stays the same for as long as the process has its process id.
    """
    start = f'process {os.getpid()} on {socket.gethostname()} since '
    name = environment.left(_NAME)
    if not name.startswith(start):   # there is none, or it is that of a parent
        name = f'{start}{time.strftime("%Y-%m-%d %H:%M:%S")}'
        environment.leave(_NAME, name)
    return name
