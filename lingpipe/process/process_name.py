"""Process name: what this process is called where it holds something, a logdir or workers, so that others can say who has it."""
from __future__ import annotations

import os
import socket
import time

_NAME = 'LINGPIPE_PROCESS'   # environment variable: goes along when a process starts itself again (commands/recovery.py)


def this_process() -> str:
    """'process 123 on HOST since 2026-01-31 12:00:00', the same for as long as it has its number."""
    start = f'process {os.getpid()} on {socket.gethostname()} since '
    if not os.environ.get(_NAME, '').startswith(start):   # or it is that of a process above
        os.environ[_NAME] = f'{start}{time.strftime("%Y-%m-%d %H:%M:%S")}'
    return os.environ[_NAME]
