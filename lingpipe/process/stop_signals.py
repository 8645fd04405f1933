"""Stop signals: SIGTERM, SIGHUP and Ctrl-C ask for a stop; a loop looks between two steps.

A terminal that is closed sends SIGHUP. A process that ignores it, as under nohup, goes on doing so.

A supervisor that ends a whole tree of processes (systemd, tini -g) sends a process the signal that
its launcher also forwards to it. So the same signal within REPEATED_S counts as the same request.
"""
from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Self

from lingpipe.process import closed_pipe, environment

REPEATED_S = 1.0
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# Environment variable: the file descriptor from which a process that has taken the place of another
# one reads the signals that this one got last.
_INHERITED = 'LINGPIPE_STOP_SIGNALS'

_Handler = Callable[[int, FrameType | None], object] | int | None   # of signal.signal


def heeded() -> list[signal.Signals]:
    """The stop signals, without a SIGHUP that this process ignores."""
    is_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [number for number in SIGNALS if not (is_ignored and number == signal.SIGHUP)]


class StopSignals:
    """A context in which the first of some signals only sets `name`.

    A second signal acts as it did before, once a line has said so. Every thread sees the name at
    once, even while the main thread, where Python calls handlers, waits in TensorFlow: Python
    writes the number of a signal to a pipe when it comes.
    """

    def __init__(self, numbers: Sequence[signal.Signals] = (),
                 at_second: str = 'this run ends at once, without a checkpoint of its last steps'
                 ) -> None:
        """
        Args:
          numbers: the signals; default: `heeded`.
          at_second: what a second signal does, for the line.
        """
        self._numbers, self._at_second = numbers, at_second
        self._name = ''
        self._handlers_before: dict[signal.Signals, _Handler] = {}
        self._pipe: tuple[int, int] | None = None
        self._wakeup_fd_before = -1
        self._timer: threading.Timer | None = None   # runs while a signal may be a repeated one

    @property
    def name(self) -> str:
        """'SIGTERM', 'SIGINT', 'SIGHUP', or '' as long as there was none."""
        if not self._name and self._pipe:
            self._name = _name_in(self._pipe[0], self._numbers or SIGNALS)
        return self._name

    def leave_to_next_process(self) -> None:
        """Keeps signals from now on for the StopSignals of the process that takes this one's place.

        This thread blocks them until then. Other threads may still catch them, and leave their
        numbers in the pipe, which nobody reads in this process any more.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        pipe, self._pipe = self._pipe, None
        if pipe:
            os.set_inheritable(pipe[0], True)
            environment.leave(_INHERITED, str(pipe[0]))

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self   # Python allows handlers in the main thread alone

        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        self._wakeup_fd_before = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        self._handlers_before = {number: signal.signal(number, self._catch)
                                 for number in self._numbers or heeded()}

        inherited = environment.take(_INHERITED)
        if inherited:
            self._name = _name_in(int(inherited), SIGNALS)
            os.close(int(inherited))
        # A process that starts itself again has blocked them (commands/recovery.py).
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._timer:
            self._timer.join()   # The first signal may come again until then.
        self._put_back_handlers()
        if self._pipe:
            signal.set_wakeup_fd(self._wakeup_fd_before)
            pipe = self._pipe
            self._pipe = None
            for end in pipe:
                os.close(end)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        """Notes the first signal."""
        self._name = signal.Signals(number).name
        for heeded_number in self._handlers_before:
            signal.signal(heeded_number, self._catch_second)
        self._timer = threading.Timer(REPEATED_S, self._forget_repeated)
        self._timer.daemon = True
        self._timer.start()

    def _forget_repeated(self) -> None:
        """Empties the pipe of what came so soon that it is the same request."""
        if self._pipe:
            _numbers_in(self._pipe[0])

    def _catch_second(self, number: int, frame: FrameType | None) -> None:
        """Lets a second signal act as it did before, unless it is the first one, repeated."""
        if signal.Signals(number).name == self._name and self._is_repeated(number):
            return
        self._put_back_handlers()
        with contextlib.suppress(RuntimeError):   # Another line was just being printed.
            closed_pipe.say(f'{signal.Signals(number).name}: a second signal; {self._at_second}',
                            sys.stderr)
        signal.raise_signal(number)
        if signal.getsignal(number) == signal.SIG_DFL:   # Linux spares the process with the id 1.
            os._exit(128 + number)

    def _is_repeated(self, number: int) -> bool:
        """Whether no signal of this number came later than REPEATED_S after the first.

        The handler may be called much later, when TensorFlow returns.
        """
        is_soon = self._timer is not None and self._timer.is_alive()
        return is_soon or self._pipe is None or number not in _numbers_in(self._pipe[0])

    def _put_back_handlers(self) -> None:
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        self._handlers_before = {}


def _name_in(pipe: int, numbers: Sequence[signal.Signals]) -> str:
    """The name of the first of some signals whose number is in a pipe; '' if there is none."""
    return next((signal.Signals(number).name for number in _numbers_in(pipe) if number in numbers),
                '')


def _numbers_in(pipe: int) -> bytes:
    """Takes the numbers of signals out of a pipe."""
    with contextlib.suppress(BlockingIOError):
        return os.read(pipe, 1 << 16)
    return b''
