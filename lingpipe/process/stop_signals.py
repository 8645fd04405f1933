"""Stop signals: SIGTERM, SIGHUP and Ctrl-C ask for a stop; a loop looks between two steps.

A terminal that is closed sends SIGHUP. A process that ignores it, as under nohup, goes on doing so.
"""
from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

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
    """A context in which the first of SIGNALS only sets `name`.

    A second signal acts as it did before. Every thread sees the name at once, even while the main
    thread, where Python calls handlers, waits in TensorFlow: Python writes the number of a signal
    to a pipe when it comes.
    """

    def __init__(self) -> None:
        self._name = ''
        self._handlers_before: dict[signal.Signals, _Handler] = {}
        self._pipe: tuple[int, int] | None = None
        self._wakeup_fd_before = -1

    @property
    def name(self) -> str:
        """'SIGTERM', 'SIGINT', 'SIGHUP', or '' as long as there was none."""
        if not self._name and self._pipe:
            self._name = _name_in(self._pipe[0])
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
            os.environ[_INHERITED] = str(pipe[0])

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self   # Python allows handlers in the main thread alone

        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        self._wakeup_fd_before = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        self._handlers_before = {number: signal.signal(number, self._catch)
                                 for number in heeded()}

        inherited = os.environ.pop(_INHERITED, '')
        if inherited:
            self._name = _name_in(int(inherited))
            os.close(int(inherited))
        # A process that starts itself again has blocked them (commands/recovery.py).
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._put_back_handlers()
        if self._pipe:
            signal.set_wakeup_fd(self._wakeup_fd_before)
            pipe = self._pipe
            self._pipe = None
            for end in pipe:
                os.close(end)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        self._name = signal.Signals(number).name
        self._put_back_handlers()

    def _put_back_handlers(self) -> None:
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        self._handlers_before = {}


def _name_in(pipe: int) -> str:
    """The name of the first stop signal whose number is in a pipe; '' if there is none."""
    with contextlib.suppress(BlockingIOError):
        for number in os.read(pipe, 64):
            if number in SIGNALS:
                return signal.Signals(number).name
    return ''
