"""An exit code of a child process, in words."""
from __future__ import annotations

import signal


def ending(code: int) -> str:
    """Names what ended a process: 'SIGKILL', 'signal 34' or 'exit code 1'.

    Args:
      code: as `subprocess.Popen.returncode` has it, where a signal is a negative number.
    """
    if code >= 0:
        return f'exit code {code}'
    try:
        return signal.Signals(-code).name
    except ValueError:   # The signals for real time between the first and the last have no name.
        return f'signal {-code}'
