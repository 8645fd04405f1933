"""Run report: all that a person sees of a run while it trains: lines, and numbers for TensorBoard.

A file that cannot be written, as on a full disk, costs a line and no more: the run goes on.
"""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping

from lingpipe.training.reporting.progress import Progress
from lingpipe.training.reporting.summaries import Summaries

TENSORBOARD = 'TensorBoard files'


class RunReport:
    """Shows lines on a Progress, once there is one, and writes summaries.

    Attributes:
      summaries: by name, which is also that of the directory below LOGDIR/tensorboard.
    """

    def __init__(self, logdir: str, names: Iterable[str]):
        self.summaries: Mapping[str, Summaries] = {
            name: Summaries(os.path.join(logdir, 'tensorboard', name)) for name in names}
        self._progress: Progress | None = None
        self._unwritten: set[str] = set()

    @contextlib.contextmanager
    def shown_by(self, progress: Progress) -> Iterator[None]:
        """A context in which lines can be shown."""
        with progress:
            self._progress = progress
            yield

    @property
    def progress(self) -> Progress:
        """Where lines are shown."""
        assert self._progress is not None, 'the run has not begun'
        return self._progress

    def say(self, text: str) -> None:
        """Shows a line, or lines, of their own."""
        self.progress.message(text)

    @contextlib.contextmanager
    def optional(self, what: str, step: int) -> Iterator[None]:
        """A context for writing files that training can do without.

        If they cannot be written, there is one line about it, and no other until they can again.
        """
        try:
            yield
            self._unwritten.discard(what)
        except OSError as error:
            if what not in self._unwritten:
                self.say(f'step {step}: {what} cannot be written: {error}. The run goes on '
                         f'without.')
            self._unwritten.add(what)

    def close(self) -> None:
        """Closes the files of the summaries."""
        for summaries in self.summaries.values():
            summaries.close()
