"""Watchdog: a thread that ends the wait for a worker that hangs: TensorFlow has no time limit for a step.

A main thread that waits in TensorFlow cannot be interrupted, so the thread acts itself: it calls `give_up`, which does not return.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from lingpipe.cluster.client import Connection

ASK_EVERY_S = 10.  # A step may wait for ever for a worker that died at the wrong moment; TensorFlow does not always notice.
_ASK_WHEN_STOPPING_EVERY_S = 1.


class _Stop(Protocol):
    @property
    def name(self) -> str:
        """Of the signal, or ''."""


class Watchdog:
    """Watches one activity after another. Give it the connection when there is one, tell it of every step, and stop it at the end.

    Attributes:
      connection: whose workers are asked; None: nobody is.
    """

    def __init__(self, limit_s: float, give_up: Callable[[str], None], stop: _Stop | None = None):
        """
        Args:
          limit_s: time of a step, after which it counts as hung.
          give_up: called in a thread of its own with a few words on what happened.
          stop: a signal that comes before the first activity makes it give up at once, since there is nothing that could be saved.
        """
        self.connection: Connection | None = None
        self._limit_s, self._give_up, self._stop_signal = limit_s, give_up, stop
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._what, self._is_bounded, self._since_s = '', False, time.monotonic()
        self._thread = threading.Thread(target=self._run, name='watchdog', daemon=True)
        self._thread.start()

    def begin(self, what: str, is_bounded: bool = False) -> None:
        """The activity before is done, and another begins.

        Args:
          what: 'step 12'.
          is_bounded: whether it takes longer than limit_s only if something hangs. Of others, as the first step, which is traced, the
            workers are asked from time to time whether they are there.
        """
        with self._lock:
            self._what, self._is_bounded, self._since_s = what, is_bounded, time.monotonic()

    def stop(self) -> None:
        """Watches no more."""
        self._stopped.set()
        self._thread.join(1.)

    def _run(self) -> None:
        asked_s = time.monotonic()
        while not self._stopped.wait(min(1., self._limit_s / 4)):
            is_stopping = self._stop_signal is not None and bool(self._stop_signal.name)
            with self._lock:
                what, is_bounded, since_s = self._what, self._is_bounded, self._since_s
                if is_stopping and not what and not self._stopped.is_set():
                    self._give_up('it had not begun' if self.connection else 'it was waiting for workers')
            if self.connection is None:
                continue
            now_s = time.monotonic()
            is_late = now_s - since_s >= self._limit_s
            if not is_late and now_s - max(since_s, asked_s) < (_ASK_WHEN_STOPPING_EVERY_S if is_stopping else ASK_EVERY_S):
                continue
            asked_s = now_s
            why = self.connection.silent()
            if why and not is_late:
                why = self.connection.silent()  # one that is busy may have been slow to answer
            if not why and is_late and is_bounded:
                why = 'all workers answer, but it does not end'
            with self._lock:
                if self._stopped.is_set() or since_s != self._since_s:
                    continue   # it has gone on meanwhile
                if not why:
                    if is_late:
                        self._since_s = time.monotonic()
                    continue
            what = what or 'the start'
            self._give_up(f'{what} took longer than train.step_timeout_s={self._limit_s:g}: {why}' if is_late else f'{what}: {why}')
