"""InputMeter: how long a run waits for its input."""
from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar('T')


class InputMeter(Generic[T]):
    """An iterator that measures how long it takes to get the next item.

        batches = InputMeter(input.dataset(position))
        for batch in batches:
            train(batch)
            if step % 100 == 0 and (warning := batches.warning()):
                logging.warning(warning)

    A wait is what the caller sees: with prefetching it is near 0 as long as the input keeps up. The
    first item, for which everything must be started, is not counted.
    """

    def __init__(self, items: Iterable[T], clock: Callable[[], float] = time.perf_counter):
        self._items: Iterator[T] = iter(items)
        self._clock = clock
        self._started: float | None = None
        self._waited = 0.
        self._num_items = 0

    def __iter__(self) -> InputMeter[T]:
        return self

    def __next__(self) -> T:
        before = self._clock()
        item = next(self._items)
        after = self._clock()
        if self._started is None:
            self._started = after
        else:
            self._waited += after - before
            self._num_items += 1
        return item

    def add_wait(self, seconds: float) -> None:
        """Adds what was waited elsewhere for the last item; that of the first is not counted."""
        if self._num_items:
            self._waited += seconds

    def reset(self) -> None:
        """Starts measuring from scratch."""
        if self._started is not None:
            self._started = self._clock()
        self._waited = 0.
        self._num_items = 0

    @property
    def wait_s(self) -> float:
        """Mean seconds of waiting for an item since the last reset; 0 if there was none."""
        return self._waited / self._num_items if self._num_items else 0.

    @property
    def share(self) -> float:
        """The part of the time since the last reset that was spent waiting: 0 to 1."""
        if self._started is None:
            return 0.
        elapsed = self._clock() - self._started
        return self._waited / elapsed if elapsed > 0 else 0.

    def warning(self, threshold: float = 0.1) -> str:
        """A sentence if more than `threshold` of the time was spent waiting, else ''.

        Measuring then starts from scratch.
        """
        share, wait_s, num_items = self.share, self.wait_s, self._num_items
        self.reset()
        if share <= threshold or not num_items:
            return ''
        return (f'the training waits for its input {share:.0%} of the time, '
                f'{1000 * wait_s:.1f} ms a batch; raise prefetch, make preprocess cheaper, or give '
                'the input more processors.')
