"""Progress: a bar on a terminal, and plain lines in LOGDIR/train.log.

If the standard output is no terminal, it gets the lines too.
"""
from __future__ import annotations

import collections
import contextlib
import os
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import IO, Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from lingpipe.checkpoint import side_files
from lingpipe.process import closed_pipe
from lingpipe.wording.counts import counted

_NUM_RECENT = 50  # steps over which the shown time is averaged


class Progress:
    """A context manager, which restores the terminal at the end."""

    def __init__(self, first_step: int, num_steps: int, examples_per_step: int, log_path: str,
                 every_s: float, out: IO[str] | None = None):
        """
        Args:
          first_step: the number of steps made before.
          num_steps: the step at which the run ends.
          examples_per_step: to show examples/s.
          log_path: the file to which lines are appended.
          every_s: seconds between two lines.
          out: where to show progress; default: sys.stdout, which may be None.
        """
        self._step, self._num_steps = first_step, num_steps
        self._examples_per_step, self._every_s = examples_per_step, every_s
        self._out: IO[str] | None = out or sys.stdout
        self._log_path = log_path
        self._log = self._open_log()
        self._is_log_written = True
        self._recent: collections.deque[float] = collections.deque(maxlen=_NUM_RECENT)
        self._is_first = True
        self._line = 'the first step is being built'
        self._next_line_s = 0.0
        self._bar: Bar | None = None
        if self._out is not None and self._out.isatty():
            self._bar = Bar(TextColumn('step {task.completed:.0f}/{task.total:.0f}'), BarColumn(),
                            TextColumn('{task.fields[line]}'),
                            console=Console(file=self._out), refresh_per_second=4)
            self._task = self._bar.add_task(
                '', total=num_steps, completed=first_step, line=self._line)

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._bar:
            # The last step may not have been shown.
            self._bar.update(self._task, completed=self._step, line=self._line)
            self._bar.stop()
        if self._log:
            self._log.close()

    @property
    def seconds_per_step(self) -> float | None:
        """The mean over recent steps, including input; None before the second step."""
        return sum(self._recent) / len(self._recent) if self._recent else None

    @property
    def examples_per_s(self) -> float | None:
        """The rate over recent steps, including input; None before the second step."""
        return self._examples_per_step / s if (s := self.seconds_per_step) else None

    def update(self, step: int, step_s: float, results: Mapping[str, float]) -> None:
        """Shows that a step is done and took step_s seconds.

        The first step does not count towards the mean, since the graph is built in it.
        """
        self._step = step
        if not self._is_first:
            self._recent.append(step_s)
        self._line = self._facts(results)
        now_s = time.monotonic()
        is_due = now_s >= self._next_line_s or step == self._num_steps
        if is_due:
            self._next_line_s = now_s + self._every_s
            self._write(f'step {step}/{self._num_steps}  {self._line}', is_on_terminal=False)
        if self._bar and (is_due or len(self._recent) % 10 == 1):
            self._bar.update(self._task, completed=step, line=self._line)
        self._is_first = False

    def message(self, text: str) -> None:
        """Shows one or more lines of text."""
        self._write(text.rstrip('\n'), is_on_terminal=True)

    def _facts(self, results: Mapping[str, float]) -> str:
        """Returns the numbers of a line, such as loss and examples a second."""
        parts = [f'loss {results["loss"]:.4g}', f'learning rate {results["learning_rate"]:.3g}']
        if self.examples_per_s and self.seconds_per_step:
            digits = 0 if self.examples_per_s >= 100 else 2
            parts.append(f'{self.examples_per_s:,.{digits}f} examples/s')
            parts.append(f'ETA {duration((self._num_steps - self._step) * self.seconds_per_step)}')
        return '  '.join(parts)

    def _open_log(self) -> IO[bytes] | None:
        """Opens the log without a buffer.

        A buffer would keep the lines that a full disk refuses, and raise an error at every later
        write. A file that cannot be opened is set aside. Returns None if even then no log can be
        opened.
        """
        side_files.make_way_for_file(self._log_path)
        for is_first in (True, False):
            try:
                with contextlib.suppress(OSError):
                    side_files.end_last_line(self._log_path)
                return open(self._log_path, 'ab', buffering=0)
            except OSError as error:
                if is_first and os.path.lexists(self._log_path):
                    side_files.set_aside(self._log_path, f'it cannot be written: {error.strerror}')
        return None

    def _write(self, text: str, is_on_terminal: bool) -> None:
        """Writes text to the log and, unless the terminal shows a bar instead, to the terminal."""
        try:
            if self._log is None:
                raise OSError(None, 'it cannot be opened')
            rest = f'{text}\n'.encode()
            while rest:
                rest = rest[self._log.write(rest):]
            self._is_log_written = True
        except OSError as error:
            if self._is_log_written:
                text += (f'\n{self._log_path} cannot be written: {error.strerror}. The run goes '
                         f'on; lines are shown here alone.')
                is_on_terminal = True
            self._is_log_written = False
        if self._bar is None:
            self._print(text)
        elif is_on_terminal:
            self._bar.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _print(self, text: str) -> None:
        """Prints a line.

        If the standard output cannot be written, as on a full disk, all later lines are discarded.
        """
        try:
            print(text, file=self._out, flush=True)
        except OSError as error:
            if self._out is not sys.stdout:
                raise
            closed_pipe.discard_output()
            why = f'the standard output cannot be written: {error.strerror}'
            if isinstance(error, BrokenPipeError):
                why = 'nobody reads the standard output any more'
            self._write(f'{why}. The run goes on; lines are in this file alone.',
                        is_on_terminal=False)


def duration(seconds: float) -> str:
    """Formats seconds as '0:02:05' or '3 days 1:00:00'."""
    days, rest = divmod(round(seconds), 86400)
    clock = f'{rest // 3600}:{rest // 60 % 60:02d}:{rest % 60:02d}'
    return f'{counted(days, "day")} {clock}' if days else clock
