"""Turns: the uses of a run come one after another, since all of them share one network's weights.

Two threads that evaluated different checkpoints at once got metrics of weights that were half those
of the one and half those of the other.
"""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_LOOK_S = 0.1   # how often a thread that waits for its turn looks whether another one trains by now


class Turns:
    """Gives the uses of a run their turns. A thread waits for others, but not for a training."""

    def __init__(self, logdir: str):
        """
        Args:
          logdir: that of the run, for errors.
        """
        self._logdir = logdir
        self._lock = threading.RLock()
        self._depth = 0             # of the calls that this thread makes within each other
        self._is_training = False

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """Waits for the turn of this thread, and holds it.

        Raises:
          ValueError: another thread trains.
        """
        while not self._lock.acquire(timeout=_LOOK_S):
            if self._is_training:
                raise ValueError(
                    f'the run in {self._logdir} trains in another thread; wait until that has '
                    'ended, or look at what it has saved with lp.start(..., only_reads=True).')
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self._lock.release()

    @contextlib.contextmanager
    def training(self) -> Iterator[None]:
        """Holds the turn of this thread, which it has, for a training.

        Raises:
          ValueError: this is a call within another one.
        """
        self._check_outermost('train')
        self._is_training = True
        try:
            yield
        finally:
            self._is_training = False

    def check_may_restore(self) -> None:
        """Raises ValueError if a call that surrounds this one needs the weights as they are.

        A training has a network of its own.
        """
        if not self._is_training:
            self._check_outermost('take another checkpoint')

    def _check_outermost(self, what: str) -> None:
        if self._depth > 1:
            raise ValueError(f'the run in {self._logdir} cannot {what} within another call, which '
                             'needs its weights as they are; call it after that, or take another '
                             'run with lp.start(..., only_reads=True).')
