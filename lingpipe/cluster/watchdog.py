"""Watchdog: a thread that ends the wait for a worker that hangs.

The obvious way is a time limit for a step, but TensorFlow has none, and a main thread that waits in
TensorFlow cannot be interrupted. The thread therefore acts itself: it calls `give_up`, which does
not return.
"""
from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Protocol

from lingpipe.cluster.client import Connection

# A step may wait for ever for a worker that died at the wrong moment, which TensorFlow does not
# always notice. So the workers are asked during a long activity, and more often during a stop.
ASK_EVERY_S = 10.
_ASK_WHEN_STOPPING_EVERY_S = 1.


class _Stop(Protocol):
    @property
    def name(self) -> str:
        """The name of the signal that has come, or ''."""


@dataclasses.dataclass(frozen=True)
class _Activity:
    """What the main thread does; see `Watchdog.begin`."""
    what: str
    is_bounded: bool
    since_s: float


class Watchdog:
    """Watches one activity after another.

    Give it the connection when there is one, tell it of every step, and stop it at the end.

    Attributes:
      connection: its workers are asked whether they are there; None if nobody is to be asked.
    """

    def __init__(self, limit_s: float, give_up: Callable[[str], None], stop: _Stop | None = None):
        """
        Args:
          limit_s: time of a step, after which it counts as hung.
          give_up: called in the watchdog's thread, with a few words on what happened.
          stop: the signals. One that comes before the first activity makes the watchdog give up at
            once, since there is nothing that could be saved.
        """
        self.connection: Connection | None = None
        self._limit_s = limit_s
        self._give_up = give_up
        self._stop_signal = stop
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._activity = _Activity('', False, time.monotonic())
        self._thread = threading.Thread(target=self._run, name='watchdog', daemon=True)
        self._thread.start()

    def begin(self, what: str, is_bounded: bool = False) -> None:
        """Tells that the activity before is done, and another begins.

        Args:
          what: 'step 12'.
          is_bounded: whether the activity takes longer than limit_s only if something hangs. During
            one that is not bounded, such as the first step, which is traced, the workers are asked
            from time to time whether they are there.
        """
        with self._lock:
            self._activity = _Activity(what, is_bounded, time.monotonic())

    def stop(self) -> None:
        """Stops watching."""
        self._stopped.set()
        self._thread.join(1.)

    def _run(self) -> None:
        """What the thread does: it looks at the clock, and asks the workers now and then."""
        asked_s = time.monotonic()
        while not self._stopped.wait(min(1., self._limit_s / 4)):
            is_stopping = self._stop_signal is not None and bool(self._stop_signal.name)
            with self._lock:
                activity = self._activity
                if is_stopping and not activity.what and not self._stopped.is_set():
                    self._give_up('it had not begun' if self.connection
                                  else 'it was waiting for workers')
            if self.connection is None:
                continue

            ask_every_s = _ASK_WHEN_STOPPING_EVERY_S if is_stopping else ASK_EVERY_S
            now_s = time.monotonic()
            is_late = now_s - activity.since_s >= self._limit_s
            if is_late or now_s - max(activity.since_s, asked_s) >= ask_every_s:
                asked_s = now_s
                self._ask(self.connection, activity, is_late)

    def _ask(self, connection: Connection, activity: _Activity, is_late: bool) -> None:
        """Asks the workers, and gives up if one does not answer or the activity hangs."""
        why = connection.silent()
        if why and not is_late:
            why = connection.silent()   # a busy worker may have been slow to answer the first time
        if not why and is_late and activity.is_bounded:
            why = 'all workers answer, but it does not end'

        with self._lock:
            has_gone_on = activity is not self._activity
            if self._stopped.is_set() or has_gone_on:
                return
            if not why:
                if is_late:
                    self._activity = dataclasses.replace(activity, since_s=time.monotonic())
                return

        what = activity.what or 'the start'
        if is_late:
            self._give_up(f'{what} took longer than train.step_timeout_s={self._limit_s:g}: {why}')
        else:
            self._give_up(f'{what}: {why}')
