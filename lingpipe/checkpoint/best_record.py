"""Best record: the file that says which checkpoint is kept for its metric."""
from __future__ import annotations

import json
import os
from typing import NamedTuple

from lingpipe.checkpoint import files, side_files
from lingpipe.checkpoint.unreadable import NO_FILE, reading


class Best(NamedTuple):
    """The best checkpoint.

    Attributes:
      step: of the checkpoint.
      value: of its metric.
      measure: says which metric of what it is; values of different measures cannot be compared.
        '' if the file does not say it.
    """
    step: int
    value: float
    measure: str

    def is_beaten_by(self, value: float, higher_is_better: bool) -> bool:
        """Whether another value of the metric is better."""
        return value > self.value if higher_is_better else value < self.value


class BestRecord:
    """Reads and writes best.json of a directory of checkpoints."""

    def __init__(self, directory: str):
        self._directory = directory
        self._path = os.path.join(directory, 'best.json')

    def read(self) -> Best | None:
        """Returns the best; None if the file is not there or does not name one.

        Raises:
          UnreadableError: the system does not let this process read the file.
        """
        try:
            with reading(self._path), open(self._path, encoding='utf-8') as file:
                best = json.load(file)
            step = best['step']
            value = best['value']
            measure = best.get('measure', '')
        except (*NO_FILE, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        is_right = type(step) is int and type(value) in (int, float) and value == value
        return Best(step, float(value), str(measure)) if is_right else None

    def write(self, best: Best) -> None:
        """Names the best checkpoint."""
        side_files.write_text(self._path, json.dumps(best._asdict()))
        files.sync(self._directory)

    def repair(self) -> None:
        """Sets the file aside if it is damaged; the caller may know the best from elsewhere.

        Raises:
          UnreadableError: the system does not let this process read the file.
        """
        if os.path.lexists(self._path) and self.read() is None:
            side_files.set_aside(self._path, 'it does not name the best checkpoint')
