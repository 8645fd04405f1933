"""Stop signals: SIGTERM and Ctrl-C as a wish that a loop looks at between two steps."""
from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class StopSignals:
    """A context in which the first SIGTERM or SIGINT only sets `name`; a second one acts as it did before.

    Attributes:
      name: 'SIGTERM', 'SIGINT', or '' as long as there was none.
    """

    def __init__(self) -> None:
        self.name = ''
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():   # Python allows handlers nowhere else
            self._before = {number: signal.signal(number, self._catch) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._put_back()

    def _catch(self, number: int, frame: FrameType | None) -> None:
        self.name = signal.Signals(number).name
        self._put_back()

    def _put_back(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
