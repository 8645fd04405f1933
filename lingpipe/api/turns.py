"""Turns: the uses of a run come one after another, since all of them share one network's weights.

Two threads that evaluated different checkpoints at once got metrics of weights that were half those
of the one and half those of the other.
"""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Literal, TypeAlias

_LOOK_S = 0.1   # how often a thread that waits for its turn looks whether another one takes long

LongUse: TypeAlias = Literal['train', 'watch']
_DOES: dict[LongUse, str] = {'train': 'trains', 'watch': 'watches'}


class Turns:
    """Gives the uses of a run their turns. A thread waits for others, but not for a long use."""

    def __init__(self, logdir: str):
        """
        Args:
          logdir: that of the run, for errors.
        """
        self._logdir = logdir
        self._lock = threading.RLock()
        self._depth = 0             # of the calls that this thread makes within each other
        self._long_use: LongUse | None = None   # what a thread does now

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """Waits for the turn of this thread, and holds it.

        Raises:
          ValueError: another thread trains or watches.
        """
        while not self._lock.acquire(timeout=_LOOK_S):
            if what := self._long_use:
                raise ValueError(
                    f'the run in {self._logdir} {_DOES[what]} in another thread; wait '
                    'until that has ended, or look at what is saved with '
                    'lp.start(..., only_reads=True).')
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self._lock.release()

    @contextlib.contextmanager
    def long_use(self, what: LongUse) -> Iterator[None]:
        """Holds the turn of this thread, which it has, for a use that no other thread waits for.

        Raises:
          ValueError: this is a call within another one.
        """
        self._check_outermost(what)
        self._long_use = what
        try:
            yield
        finally:
            self._long_use = None

    def check_may_restore(self) -> None:
        """Raises ValueError if a call that surrounds this one needs the weights as they are.

        A training has a network of its own.
        """
        if self._long_use != 'train':
            self._check_outermost('take another checkpoint')

    def _check_outermost(self, what: str) -> None:
        if self._depth > 1:
            raise ValueError(f'the run in {self._logdir} cannot {what} within another call, which '
                             'needs its weights as they are; call it after that, or take another '
                             'run with lp.start(..., only_reads=True).')
