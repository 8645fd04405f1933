"""Stop signals: SIGTERM and Ctrl-C as a wish that a loop looks at between two steps."""
from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """A context in which the first SIGTERM or SIGINT only sets `name`; a second one acts as it did before.

    Every thread sees the name at once, also while the main thread, where Python calls handlers, waits in TensorFlow: Python writes the
    number of a signal to a pipe when it comes.
    """

    def __init__(self) -> None:
        self._name = ''
        self._before: dict[signal.Signals, Any] = {}
        self._pipe: tuple[int, int] | None = None
        self._pipe_before = -1

    @property
    def name(self) -> str:
        """'SIGTERM', 'SIGINT', or '' as long as there was none."""
        if not self._name and self._pipe:
            with contextlib.suppress(BlockingIOError):
                self._name = next((signal.Signals(number).name for number in os.read(self._pipe[0], 64) if number in SIGNALS), '')
        return self._name

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():   # Python allows handlers nowhere else
            self._pipe = os.pipe()
            for end in self._pipe:
                os.set_blocking(end, False)
            self._pipe_before = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
            self._before = {number: signal.signal(number, self._catch) for number in SIGNALS}
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)   # a process that starts itself again has blocked them (recovery.py)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._put_back()
        if self._pipe:
            signal.set_wakeup_fd(self._pipe_before)
            pipe, self._pipe = self._pipe, None
            for end in pipe:
                os.close(end)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        self._name = signal.Signals(number).name
        self._put_back()

    def _put_back(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
