"""Evaluation log: a line for every evaluation, so that a missing one is known to be missing."""
from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from lingpipe.checkpoint import side_files
from lingpipe.checkpoint.unreadable import MISSING, reading
from lingpipe.hyperparams import Params
from lingpipe.input.example_source import text_of_data

_DATA = 'input_digest'  # The key of the digest in a line.


class EvaluationLog:
    """LOGDIR/evaluations.jsonl: a line for every evaluation that was completed.

    A line has a digest of the Params of its eval input. These may change when a run is resumed;
    evaluations with the Params of before are then not read.
    """

    def __init__(self, logdir: str, inputs: Mapping[str, Params] | None = None):
        """
        Args:
          logdir: of the run.
          inputs: the eval inputs by name; evaluations on other data are not read. None: on any.
        """
        self._path = os.path.join(logdir, 'evaluations.jsonl')
        self._data = {name: hashlib.sha256(text_of_data(params).encode()).hexdigest()[:16]
                      for name, params in (inputs or {}).items()}

    def data_of(self, name: str) -> str:
        """The digest of an eval input; '' if it is not known."""
        return self._data.get(name, '')

    def repair(self) -> None:
        """Removes lines that hold no evaluation from the file.

        A last line that a kill cut short is removed. If other lines are wrong, the file as it was
        is set aside.

        Raises:
          UnreadableError: the system does not let this process read the file.
        """
        side_files.make_way_for_file(self._path)
        try:
            lines = self._lines()
        except IsADirectoryError:   # `make_way_for_file` has warned of it
            return
        *ended, last = lines or [b'']
        wrong_numbers = [number for number, line in enumerate(ended, 1)
                         if line.strip() and _evaluation(line) is None]
        good = b''.join(line + b'\n' for line in lines if _evaluation(line) is not None)
        try:
            if wrong_numbers:
                side_files.set_aside(
                    self._path, f'{_wrong_lines_text(wrong_numbers)}; the others are kept')
                with open(self._path, 'xb') as file:
                    file.write(good)
            elif last and _evaluation(last) is None:
                logging.warning('%s ended within a line, which is removed; that evaluation is made '
                                'again', self._path)
                os.truncate(self._path, sum(len(line) + 1 for line in ended))
        except OSError as error:
            logging.warning('%s cannot be repaired: %s; lines that are no evaluations are passed '
                            'over', self._path, error.strerror)

    def check_readable(self) -> None:
        """Raises UnreadableError if the system does not let this process read the file."""
        with contextlib.suppress(IsADirectoryError):
            self._lines()

    def forget_after(self, step: int) -> None:
        """Removes the evaluations of steps later than the one at which a run resumes.

        The weights that they evaluated are lost, for example because a checkpoint could not be
        written or was removed, and the resumed run may come to others. The file as it was is set
        aside.

        Raises:
          OSError: the file cannot be written.
        """
        lines = self._lines()
        earlier = [line for line in lines
                   if (values := _evaluation(line)) is None or values['step'] <= step]
        if len(earlier) < len(lines):
            side_files.set_aside(
                self._path, f'{len(lines) - len(earlier)} of its evaluations are of later steps '
                            f'than {step}, with which this run begins; the others are kept')
            with open(self._path, 'xb') as file:
                file.write(b'\n'.join(earlier))

    def add(self, step: int, name: str, metrics: Mapping[str, float]) -> None:
        """Appends an evaluation.

        Raises:
          OSError: it cannot be written.
        """
        side_files.end_last_line(self._path)
        with open(self._path, 'ab') as file:
            data = {_DATA: self._data[name]} if name in self._data else {}
            values = {'step': step, 'input': name, **data, **metrics}
            file.write((json.dumps(values) + '\n').encode())

    def read(self) -> list[dict[str, Any]]:
        """The evaluations on the data of the inputs, oldest first; other lines are skipped.

        If the file can no longer be read, it counts as empty, so that this does not end a run.
        """
        try:
            lines = self._lines()
        except OSError:
            return []
        evaluations = [values for line in lines if (values := _evaluation(line)) is not None]
        return [values for values in evaluations
                if (data := values.pop(_DATA, None)) is None
                or data == self._data.get(values['input'], data)]

    def has(self, step: int, name: str) -> bool:
        """Whether the evaluation after a step on an eval input was completed."""
        return any(line['step'] == step and line['input'] == name for line in self.read())

    def metrics_after(self, step: int) -> dict[str, dict[str, float]]:
        """The metrics of the evaluations after a step, by eval input."""
        return {line['input']: {name: value for name, value in line.items()
                                if name not in ('step', 'input')}
                for line in self.read() if line['step'] == step}

    def _lines(self) -> list[bytes]:
        """The lines of the file, if there is one. The last is what follows the last line break."""
        try:
            with reading(self._path), open(self._path, 'rb') as file:
                return file.read().split(b'\n')
        except MISSING:
            return []


def _wrong_lines_text(numbers: Sequence[int]) -> str:
    """Returns 'line 3 is no evaluation', given the numbers of such lines."""
    first = ', '.join(map(str, numbers[:3]))
    more = f' and {len(numbers) - 3} more' if len(numbers) > 3 else ''
    if len(numbers) == 1:
        return f'line {first} is no evaluation'
    return f'lines {first}{more} are no evaluations'


def _evaluation(line: bytes) -> dict[str, Any] | None:
    """The evaluation in a line of the log, or None if it holds none.

    It has 'step', 'input', numbers by name, and the digest of the data if it was known.
    """
    try:
        values = json.loads(line)
        is_named = type(values['step']) is int and isinstance(values['input'], str)
        numbers = [value for name, value in values.items()
                   if name not in ('step', 'input', _DATA)]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    is_evaluation = is_named and all(type(value) in (int, float) for value in numbers)
    return values if is_evaluation else None
