"""Run report: what a run shows while it trains: lines of text, and numbers for TensorBoard.

If a file cannot be written, for example because the disk is full, the run says so in one line and
continues.
"""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping

from lingpipe.process.error_text import reason
from lingpipe.training.reporting.progress import Progress
from lingpipe.training.reporting.summaries import Summaries
from lingpipe.training.reporting.timeline import WHY_THEY_DIFFER, TimelineReport

TENSORBOARD = 'TensorBoard files'


class RunReport:
    """Shows lines through a Progress, and writes summaries.

    Attributes:
      summaries: name -> Summaries, in the directory LOGDIR/tensorboard/NAME.
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
        """The Progress that shows lines."""
        assert self._progress is not None, 'the run has not begun'
        return self._progress

    def say(self, text: str) -> None:
        """Shows one or more lines of text."""
        self.progress.message(text)

    @contextlib.contextmanager
    def optional(self, what: str, step: int) -> Iterator[None]:
        """A context for writing files that training does not need.

        If they cannot be written, one line says so. Further failures are silent until writing has
        succeeded again.
        """
        try:
            yield
            self._unwritten.discard(what)
        except OSError as error:
            if what not in self._unwritten:
                self.say(f'step {step}: {what} cannot be written: {reason(error)}. The run goes on '
                         f'without.')
            self._unwritten.add(what)

    def show_timeline(self, step: int, report: TimelineReport) -> None:
        """Shows the timeline of measured steps, the last of which is `step`, and its breakdown."""
        self.say(f'{report.text()}; {WHY_THEY_DIFFER}; {report.png}')
        self.say(f'{report.step_text()}\n\n{report.breakdown.text()}\n')
        summaries = self.summaries['train']
        summaries.png(step, 'timeline', report.png)
        summaries.png(step, 'breakdown', report.breakdown_png)
        summaries.text('breakdown', report.breakdown.text(), step)

    def close(self) -> None:
        """Closes the files of the summaries."""
        for summaries in self.summaries.values():
            summaries.close()
