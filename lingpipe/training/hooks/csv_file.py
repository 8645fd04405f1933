"""CSV: the numbers of steps and of evaluations as tables for pandas and spreadsheets."""
from __future__ import annotations

import csv
import os
from collections.abc import Mapping

from lingpipe.checkpoint import side_files
from lingpipe.hyperparams import field
from lingpipe.training.hooks.hook import Hook, HookedRun


class CSV(Hook):
    """Writes LOGDIR/NAME.csv, a line a step, and LOGDIR/NAME_evaluations.csv.

    A run that is resumed goes on in the same files: lines of steps that are made again are removed.
    """

    class Params(Hook.Params):
        """Where it writes."""
        name: str = field('steps', 'The name of the file, without .csv.')

    params: Params

    def on_start(self, run: HookedRun, step: int) -> None:
        """Removes the lines of steps after the one that the run goes on from."""
        for path in (self._path(run), self._evaluations_path(run)):
            rows = _rows(path)
            earlier = [row for row in rows[1:] if row and row[0].isdigit() and int(row[0]) <= step]
            if rows and [rows[0], *earlier] != rows:
                with open(f'{path}.new', 'w', newline='', encoding='utf-8') as file:
                    csv.writer(file).writerows([rows[0], *earlier] if earlier else [])
                os.replace(f'{path}.new', path)

    def on_step(self, run: HookedRun, step: int, results: Mapping[str, float]) -> None:
        """Adds a line."""
        _add(self._path(run), {'step': step, **results})

    def on_evaluation(self, run: HookedRun, step: int, name: str,
                      metrics: Mapping[str, float]) -> None:
        """Adds a line."""
        _add(self._evaluations_path(run), {'step': step, 'input': name, **metrics})

    def _path(self, run: HookedRun) -> str:
        return os.path.join(run.logdir, f'{self.params.name}.csv')

    def _evaluations_path(self, run: HookedRun) -> str:
        return os.path.join(run.logdir, f'{self.params.name}_evaluations.csv')


def _rows(path: str) -> list[list[str]]:
    try:
        with open(path, newline='', encoding='utf-8') as file:
            return list(csv.reader(file))
    except FileNotFoundError:
        return []


def _add(path: str, values: Mapping[str, float | str]) -> None:
    """Appends a line; the first of a file gets a line of names before it."""
    side_files.end_last_line(path)
    with open(path, 'a', newline='', encoding='utf-8') as file:
        writer = csv.writer(file)
        if not file.tell():
            writer.writerow(values)
        writer.writerow(values.values())
