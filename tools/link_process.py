"""The stunnel of a host that the other hosts connect to: started again whenever a signal ends it.

An stunnel that crashes as soon as it is started would be started without end, as fast as the CPU
can. So the pauses between starts double while it does, and end with an error if it was never up.
"""
from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

from lingpipe.process import closed_pipe, exit_code

_UP_AFTER_S = 10.   # An stunnel that has run as long is up.
_LONGEST_PAUSE_S = 60.
_MOST_CRASHES = 5   # one after the other, of a host whose stunnel was never up


class LinkProcess:
    """A process that is started again when a signal has ended it."""

    def __init__(self, start: Callable[[], subprocess.Popen[bytes]],
                 clock: Callable[[], float] = time.monotonic):
        """
        Args:
          start: starts the process.
          clock: the time in seconds.
        """
        self._start = start
        self._clock = clock
        self._was_up = False
        self._num_crashes = 0   # since it was up
        self._process: subprocess.Popen[bytes] | None = start()   # None: in a pause
        self._started_s = clock()
        self._starts_again_s = 0.

    def look(self) -> None:
        """Starts the process again, or begins a pause before that, if a signal has ended it.

        Raises:
          OSError: it has ended by itself, or crashes and was never up.
        """
        if self._process is None:
            self._start_after_pause()
            return
        code = self._process.poll()
        if self._clock() - self._started_s >= _UP_AFTER_S:
            self._was_up, self._num_crashes = True, 0
        if code is None:
            return
        if code >= 0:
            raise OSError(f'stunnel has ended with exit code {code}; it has said why.')

        self._num_crashes += 1
        self._process = None
        if self._num_crashes == _MOST_CRASHES and not self._was_up:
            raise OSError(f'stunnel has crashed {_MOST_CRASHES} times as it was started '
                          f'({exit_code.ending(code)}), and was never up; run stunnel -version, '
                          'install it again if that fails, and start again.')
        self._say(exit_code.ending(code))
        pause_s = min(2 ** (self._num_crashes - 2), _LONGEST_PAUSE_S)   # 2. would overflow.
        self._starts_again_s = self._clock() + (0. if self._num_crashes == 1 else pause_s)
        self._start_after_pause()

    def end(self) -> None:
        """Kills the process, if there is one."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def _start_after_pause(self) -> None:
        if self._clock() >= self._starts_again_s:
            self._process = self._start()
            self._started_s = self._clock()

    def _say(self, ending: str) -> None:
        """Says what is done, and nothing of the crashes that follow on the second."""
        if self._num_crashes == 1:
            closed_pipe.say(f'stunnel has ended ({ending}) and is started again', sys.stderr)
        elif self._num_crashes == 2:
            closed_pipe.say(f'stunnel crashes as soon as it is started ({ending}); it is started '
                            f'again after pauses that grow to {_LONGEST_PAUSE_S:g} s', sys.stderr)
