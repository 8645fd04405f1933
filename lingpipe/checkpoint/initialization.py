"""Initialization: weights taken from another experiment's checkpoint."""
from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from lingpipe.checkpoint import files
from lingpipe.checkpoint.checkpointer import Checkpointer


@dataclasses.dataclass(frozen=True)
class Initialization:
    """What `initialize` did. Keys are ours; theirs are those of the source.

    Attributes:
      source: the directory of the checkpoint.
      taken: ours -> theirs.
      not_taken: ours -> why not.
    """
    source: str
    taken: dict[str, str]
    not_taken: dict[str, str]

    def text(self) -> str:
        """One line for every variable, those that were not taken first."""
        lines = [f'{len(self.taken)} of {len(self.taken) + len(self.not_taken)} variables are taken from {self.source}.']
        lines += [f'  not taken  {key}: {why}' for key, why in self.not_taken.items()]
        lines += [f'  taken      {key}' + (f' from {theirs}' if theirs != key else '') for key, theirs in self.taken.items()]
        return '\n'.join(lines) + '\n'


def initialize(variables: Mapping[str, tf.Variable], source_dir: str, rules: Sequence[tuple[str, str | None]],
               check: Callable[[Mapping[str, Any], Iterable[str]], None] = lambda metadata, keys: None) -> Initialization:
    """Assigns some variables from another experiment's checkpoint.

    Args:
      variables: ours, by key.
      source_dir: the other's logdir, its directory of checkpoints (the newest whole one is used), or one checkpoint.
      rules: (regular expression, replacement): the first that matches the whole of our key says which of theirs is taken,
        with groups as in re.sub (r'encoder/(.*)', r'model/encoder/\\1'); a replacement of None takes nothing. Keys without a rule
        stay as they are.
      check: is given the metadata of the source and our keys for which something is taken, before anything is; raises ValueError to
        refuse.

    Raises:
      ValueError: no checkpoint there, a rule that matches no key, nothing that could be taken, or what `check` raises.
    """
    for pattern, _ in rules:
        if not any(re.fullmatch(pattern, key) for key in variables):
            raise ValueError(f'the rule {pattern!r} matches none of the {len(variables)} variables; they look like '
                             f'{", ".join(list(variables)[:3])}. A rule must match the whole path: correct or remove it.')
    for path, facts in _whole_ones(source_dir):
        report = _planned(variables, path, facts['variables'], rules)
        check(facts['metadata'], report.taken)
        try:
            files.assign(path, ((variables[key], theirs) for key, theirs in report.taken.items()))
            return report
        except files.DamagedError as error:
            logging.warning('checkpoint %s is damaged and not used: %s', path, error)
    raise AssertionError('_whole_ones has raised an error')


def _planned(variables: Mapping[str, tf.Variable], path: str, saved: Mapping[str, Any],
             rules: Sequence[tuple[str, str | None]]) -> Initialization:
    """What is to be taken from the checkpoint `path` by the rules; see `initialize`."""
    report = Initialization(path, {}, {})
    for key, variable in variables.items():
        match, replacement = next(((m, r) for p, r in rules if (m := re.fullmatch(p, key))), (None, None))
        if match is None or replacement is None:
            report.not_taken[key] = 'no rule for it' if match is None else 'by a rule'
            continue
        theirs = match.expand(replacement)
        there = saved.get(theirs)
        if there is None:
            report.not_taken[key] = f'there is no {theirs}'
        elif there['shape'] != variable.shape.as_list():
            report.not_taken[key] = f'its shape is {variable.shape.as_list()}, and {there["shape"]} there'
        else:
            report.taken[key] = theirs
    if not report.taken:
        raise ValueError(f'nothing could be taken from {path}: correct the rules. {report.text()}')
    return report


def find_whole(source_dir: str) -> tuple[str, dict[str, Any]]:
    """A checkpoint's directory and facts, from a logdir, a directory of checkpoints or the directory itself.

    Raises:
      ValueError: there is none that can be read.
    """
    return next(_whole_ones(source_dir))


def _whole_ones(source_dir: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """As find_whole, but every checkpoint there, the newest first; raises ValueError where another is asked for and there is none."""
    if files.STEP_NAME.fullmatch(os.path.basename(os.path.normpath(source_dir))):
        candidates = [source_dir]
    else:
        below = os.path.join(source_dir, 'checkpoints')
        reader = Checkpointer(below if os.path.isdir(below) else source_dir, is_writer=False)
        candidates = [reader.path(step) for step in reversed(reader.steps())]
    failures = []
    for path in candidates:
        try:
            facts = files.read_facts(path)
        except files.DamagedError as error:
            failures.append(f'{path}: {error}')
            logging.warning('checkpoint %s is damaged and not used: %s', path, error)
            continue
        yield path, facts
    raise ValueError(f'{source_dir} has no checkpoint that can be read; name a logdir, its checkpoints or one step-... in it. '
                     f'{" ".join(failures)}'.rstrip())
