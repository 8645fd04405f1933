"""Stop signals: SIGTERM and Ctrl-C as a request to stop, which a loop checks between two steps."""
from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

SIGNALS = (signal.SIGTERM, signal.SIGINT)

_Handler = Callable[[int, FrameType | None], object] | int | None   # of signal.signal


class StopSignals:
    """A context in which the first SIGTERM or SIGINT only sets `name`.

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
        """'SIGTERM', 'SIGINT', or '' as long as there was none."""
        if not self._name and self._pipe:
            with contextlib.suppress(BlockingIOError):
                numbers = os.read(self._pipe[0], 64)
                names = [signal.Signals(number).name for number in numbers if number in SIGNALS]
                self._name = names[0] if names else ''
        return self._name

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self   # Python allows handlers in the main thread alone

        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        self._wakeup_fd_before = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        self._handlers_before = {number: signal.signal(number, self._catch) for number in SIGNALS}

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
