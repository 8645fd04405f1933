"""Pacing: how much CPU time the thread takes that writes a checkpoint while training goes on.

The obvious way is to give the thread a low priority. It has one, but that alone leaves it a tenth
of a core that the steps want, and Python's interpreter lock has no priorities. So the thread also
sleeps between parts of its work, until somebody waits for it.
"""
from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time

RESTS = 19.            # a sleep takes this many times the CPU time before it: 5% of a core
_SPREAD = 0.8          # the largest part of the time between two checkpoints that writing may take
_NICENESS = 10         # with it, a thread gets a tenth of a core that others want
_HEAD_START_S = 0.2    # while a step begins, it and the thread would take turns at Python's lock


class Pacing:
    """Spreads the work of one save after another over the time in which training goes on."""

    def __init__(self) -> None:
        self._began_s = -math.inf         # when the last save began, or the steps before the first
        self._due_s = math.inf            # when the save that is written should have ended
        self._rested_at_cpu_s = 0.        # the CPU time of the thread at the end of its last sleep
        self._elsewhere_s = 0.            # what workers have worked for the save since then
        self._hurry = threading.Event()   # somebody waits for the save

    def begin_steps(self) -> None:
        """Tells that steps are being made, and so how soon the save after the first may come."""
        if self._began_s == -math.inf:
            self._began_s = time.monotonic()

    def begin_save(self) -> None:
        """Tells that a save begins. The next one may come as soon as this one did."""
        now_s = time.monotonic()
        self._due_s = now_s + _SPREAD * (now_s - self._began_s)
        self._began_s = now_s

    def begin_background(self) -> None:
        """Tells that the thread, which will be slow until `hurry` is called, is about to start."""
        self._hurry.clear()

    def begin_thread(self) -> None:
        """Lets the next step begin, then lowers the priority of this thread, which writes."""
        self._hurry.wait(min(_HEAD_START_S, (self._due_s - time.monotonic()) / 4))
        self._rested_at_cpu_s = time.thread_time()
        with contextlib.suppress(OSError):
            if sys.platform == 'linux':   # elsewhere it would be the priority of the process
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)

    def add_work(self, seconds: float) -> None:
        """Counts the time for which workers have written beside their steps."""
        self._elsewhere_s += seconds

    def rest(self, num_left: int) -> None:
        """Sleeps in proportion to the CPU time used since the last sleep, here and on workers.

        Sleeps are shorter where the next save would have to wait for this one.

        Args:
          num_left: how many sleeps, each with a part of the work after it, are left.
        """
        worked_s = time.thread_time() - self._rested_at_cpu_s + self._elsewhere_s
        share_s = (self._due_s - time.monotonic()) / num_left
        self._hurry.wait(max(0., min(RESTS * worked_s, share_s)))
        self._rested_at_cpu_s, self._elsewhere_s = time.thread_time(), 0.

    def hurry(self) -> None:
        """Ends all sleeps, because somebody waits for the save."""
        self._hurry.set()
