"""Checkpoint: variables and a few facts about them on disk, whole or not at all.

    checkpoints/step-00000123/variables.index, variables.data-...     tf.train.Checkpoint, keyed by path, never by cell
                              metadata.json                           shapes, dtypes, the caller's metadata, a checksum
    checkpoints/best.json                                             the step that is kept for its metric
    checkpoints/tmp-*                                                 being written; left over after a kill, removed at the next start
    checkpoints/old-step-*                                            in the way of a newer save of the same step
    checkpoints/bad-step-*                                            damaged, kept for a person to look at, otherwise ignored

A directory gets its final name by one rename when all its files are on the disk, so a kill at any moment leaves the checkpoints
before it. Bits that rot later are found by the checksums that TensorFlow keeps for every tensor.
"""
from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

FORMAT = 1
_STEP = re.compile(r'step-(\d{8,})')


class DamagedError(Exception):
    """A checkpoint that cannot be read; the message says why."""


class Checkpointer:
    """Saves and restores the checkpoints of one experiment.

    Attributes:
      directory: where they are.
    """

    def __init__(self, directory: str, keep: int = 3, is_writer: bool = True, io_device: str | None = None):
        """
        Args:
          directory: made if it is not there.
          keep: how many of the newest stay; the best stays besides.
          is_writer: whether this process may save. Only one does: an evaluation beside a training sets it to False.
          io_device: the device whose process writes and reads the files, as '/job:localhost'; default: each variable's own process,
            which on several machines needs a file system that all share.

        Raises:
          ValueError: keep is below 1.
          OSError: the directory cannot be made or cleaned up.
        """
        if keep < 1:
            raise ValueError(f'keep={keep} would keep no checkpoint; use 1 or more.')
        self.directory = directory
        self._keep, self._is_writer = keep, is_writer
        self._options = tf.train.CheckpointOptions(experimental_io_device=io_device)
        self._damaged: set[int] = set()
        if is_writer:
            try:
                os.makedirs(directory, exist_ok=True)
                self._clean_up()
            except OSError as error:
                raise OSError(f'checkpoints cannot be kept in {directory}: {error}; choose a logdir that can be written.') from error

    def steps(self) -> list[int]:
        """The steps that are saved, oldest first."""
        names = os.listdir(self.directory) if os.path.isdir(self.directory) else []
        return sorted(int(match[1]) for name in names if (match := _STEP.fullmatch(name)))

    # Saving.

    def save(self, step: int, variables: Mapping[str, tf.Variable], metadata: Mapping[str, Any] | None = None) -> str:
        """Writes the variables, on whatever devices they are, and the metadata; then removes checkpoints that are not kept.

        Args:
          step: the number of updates made. A checkpoint of the same step is replaced.
          variables: by key: the path of the weight, or a name that tells what it is to which weight.
          metadata: whatever JSON can hold; `restore` returns it.

        Returns:
          The directory of the checkpoint.

        Raises:
          ValueError: metadata that is not JSON.
          OSError: it cannot be written; what was saved before is still there.
        """
        assert self._is_writer, 'this Checkpointer only reads'
        facts = {'format': FORMAT, 'step': step, 'metadata': dict(metadata or {}),
                 'variables': {key: {'shape': v.shape.as_list(), 'dtype': v.dtype.name} for key, v in variables.items()}}
        try:
            facts['checksum'] = _checksum(facts)
        except TypeError as error:
            raise ValueError(f'metadata of step {step} cannot be saved as JSON: {error}; use numbers, texts, lists and dicts.') from error
        final, temporary = self._path(step), os.path.join(self.directory, f'tmp-{os.path.basename(self._path(step))}')
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            os.makedirs(temporary)
            tf.train.Checkpoint(variables=dict(variables)).write(os.path.join(temporary, 'variables'), options=self._options)
            with open(os.path.join(temporary, 'metadata.json'), 'w') as file:
                json.dump(facts, file, indent=1)
            for name in [*os.listdir(temporary), '.']:
                _sync(os.path.join(temporary, name))
            for damaged in self._damaged & set(self.steps()):   # or they would count as the newest
                os.replace(self._path(damaged), self._path(damaged, 'bad-'))
            if os.path.exists(final):
                os.replace(final, self._path(step, 'old-'))
            os.replace(temporary, final)
            _sync(self.directory)
        except (OSError, tf.errors.OpError) as error:
            shutil.rmtree(temporary, ignore_errors=True)
            saved = self.steps()
            raise OSError(f'the checkpoint of step {step} cannot be written to {self.directory}: {_sentence(error)}; '
                          f'{f"that of step {saved[-1]} is still whole" if saved else "there is none before it"}. Make room or '
                          'choose another logdir, and start again.') from error
        self._damaged.clear()
        self._clean_up()
        self._prune(step)
        return final

    def mark_best(self, step: int, value: float, higher_is_better: bool = True) -> bool:
        """Keeps the checkpoint of `step`, if value is better than that of the best so far; returns whether it is."""
        best = self.best()
        if not value == value or best is not None and not (value > best[1] if higher_is_better else value < best[1]):
            return False
        if step not in self.steps():
            logging.warning('step %d has the best value, %g, but its checkpoint is gone; keep more of them', step, value)
            return False
        path = os.path.join(self.directory, 'best.json')
        with open(f'{path}.new', 'w') as file:
            json.dump({'step': step, 'value': value}, file)
        _sync(f'{path}.new')
        os.replace(f'{path}.new', path)
        _sync(self.directory)
        return True

    def best(self) -> tuple[int, float] | None:
        """(step, value) of the best checkpoint, or None."""
        try:
            with open(os.path.join(self.directory, 'best.json')) as file:
                best = json.load(file)
            return (int(best['step']), float(best['value'])) if int(best['step']) in self.steps() else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    # Restoring.

    def restore(self, variables: Mapping[str, tf.Variable], step: int | None = None) -> dict[str, Any] | None:
        """Assigns all variables from the newest checkpoint that is whole; each that is not is reported in the log.

        Args:
          variables: exactly those that were saved.
          step: of another checkpoint than the newest, as for an evaluation.

        Returns:
          The metadata that was saved, with 'step'; None if there is no checkpoint.

        Raises:
          ValueError: keys, shapes or dtypes differ; `step` is not there; or checkpoints are there and none is whole.
        """
        steps = self.steps()
        if step is not None and step not in steps:
            raise ValueError(f'{self.directory} has no checkpoint of step {step}; it has {", ".join(map(str, steps)) or "none"}.')
        failures = []
        for candidate in [step] if step is not None else reversed(steps):
            path = self._path(candidate)
            try:
                facts = _read_facts(path)
                _check_same(path, facts['variables'], variables)
                _assign(path, ((variable, key) for key, variable in variables.items()))
                return {**facts['metadata'], 'step': facts['step']}
            except DamagedError as error:
                failures.append(f'{path}: {error}')
                self._damaged.add(candidate)
                logging.warning('checkpoint %s is damaged and not used: %s', path, error)
        if failures:
            raise ValueError(f'none of the {len(failures)} checkpoints can be read; variables may be changed in part. Restore the files '
                             f'from a copy, or choose another logdir to start anew. {" ".join(failures)}')
        return None

    # The directory.

    def _path(self, step: int, prefix: str = '') -> str:
        return os.path.join(self.directory, f'{prefix}step-{step:08d}')

    def _clean_up(self) -> None:
        """Removes what a kill has left, and finishes a replacement that it has interrupted."""
        for name in sorted(os.listdir(self.directory)):
            path = os.path.join(self.directory, name)
            if name.startswith('old-') and not os.path.exists(os.path.join(self.directory, name[4:])):
                os.replace(path, os.path.join(self.directory, name[4:]))
            elif name.startswith(('tmp-', 'old-')):
                shutil.rmtree(path)

    def _prune(self, saved: int) -> None:
        best = self.best()
        kept = {saved, *self.steps()[-self._keep:], *([best[0]] if best else [])}
        for step in self.steps():
            if step not in kept:
                with contextlib.suppress(OSError):   # an evaluation may be reading it; the next save tries again
                    os.replace(self._path(step), self._path(step, 'tmp-gone-'))
                    shutil.rmtree(self._path(step, 'tmp-gone-'))


@dataclasses.dataclass(frozen=True)
class Initialization:
    """What `initialize` did. Keys are ours; theirs are those of the source.

    Attributes:
      source: the directory of the checkpoint.
      taken: ours -> theirs.
      not_taken: ours -> why not.
      shapes: ours -> (shape here, shape there), of those that were not taken as they differ.
    """
    source: str
    taken: dict[str, str]
    not_taken: dict[str, str]
    shapes: dict[str, tuple[list[int], list[int]]]

    def text(self) -> str:
        """One line for every variable, those that were not taken first."""
        lines = [f'{len(self.taken)} of {len(self.taken) + len(self.not_taken)} variables are taken from {self.source}.']
        lines += [f'  not taken  {key}: {why}' for key, why in self.not_taken.items()]
        lines += [f'  taken      {key}' + (f' from {theirs}' if theirs != key else '') for key, theirs in self.taken.items()]
        return '\n'.join(lines) + '\n'


def initialize(variables: Mapping[str, tf.Variable], source_dir: str, rules: Sequence[tuple[str, str | None]]) -> Initialization:
    """Assigns some variables from another experiment's checkpoint.

    Args:
      variables: ours, by key.
      source_dir: the other's logdir, its directory of checkpoints (the newest whole one is used), or one checkpoint.
      rules: (regular expression, replacement): the first that matches the whole of our key says which of theirs is taken,
        with groups as in re.sub (r'encoder/(.*)', r'model/encoder/\\1'); a replacement of None takes nothing. Keys without a rule
        stay as they are.

    Raises:
      ValueError: no checkpoint there, a rule that matches no key, or nothing that could be taken.
    """
    for pattern, _ in rules:
        if not any(re.fullmatch(pattern, key) for key in variables):
            raise ValueError(f'the rule {pattern!r} matches none of the {len(variables)} variables; they look like '
                             f'{", ".join(list(variables)[:3])}. A rule must match the whole path: correct or remove it.')
    path, facts = _find_whole(source_dir)
    report = Initialization(path, {}, {}, {})
    for key, variable in variables.items():
        match, replacement = next(((m, r) for p, r in rules if (m := re.fullmatch(p, key))), (None, None))
        if match is None or replacement is None:
            report.not_taken[key] = 'no rule for it' if match is None else 'by a rule'
            continue
        theirs = match.expand(replacement)
        there = facts['variables'].get(theirs)
        if there is None:
            report.not_taken[key] = f'there is no {theirs}'
        elif there['shape'] != variable.shape.as_list():
            report.shapes[key] = (variable.shape.as_list(), there['shape'])
            report.not_taken[key] = f'its shape is {variable.shape.as_list()}, and {there["shape"]} there'
        else:
            report.taken[key] = theirs
    if not report.taken:
        raise ValueError(f'nothing could be taken from {path}: correct the rules. {report.text()}')
    try:
        _assign(path, ((variables[key], theirs) for key, theirs in report.taken.items()))
    except DamagedError as error:
        raise ValueError(f'{path} is damaged: {error}; name another checkpoint.') from error
    return report


# Files.

def _find_whole(source_dir: str) -> tuple[str, dict[str, Any]]:
    """A checkpoint's directory and facts, from a logdir, a directory of checkpoints or the directory itself."""
    if _STEP.fullmatch(os.path.basename(os.path.normpath(source_dir))):
        candidates = [source_dir]
    else:
        below = os.path.join(source_dir, 'checkpoints')
        reader = Checkpointer(below if os.path.isdir(below) else source_dir, is_writer=False)
        candidates = [reader._path(step) for step in reversed(reader.steps())]
    failures = []
    for path in candidates:
        try:
            return path, _read_facts(path)
        except DamagedError as error:
            failures.append(f'{path}: {error}')
            logging.warning('checkpoint %s is damaged and not used: %s', path, error)
    raise ValueError(f'{source_dir} has no checkpoint that can be read; name a logdir, its checkpoints or one step-... in it. '
                     f'{" ".join(failures)}'.rstrip())


def _read_facts(path: str) -> dict[str, Any]:
    """metadata.json."""
    try:
        with open(os.path.join(path, 'metadata.json')) as file:
            facts = json.load(file)
        if facts['format'] > FORMAT:
            raise ValueError
        is_whole = facts.pop('checksum') == _checksum(facts)
    except (OSError, KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DamagedError(f'metadata.json cannot be read: {type(error).__name__}: {error}') from error
    except ValueError:
        raise ValueError(f'{path} has format {facts["format"]}, and this lingpipe reads up to {FORMAT}; use a newer one.') from None
    if not is_whole:
        raise DamagedError('metadata.json does not have its checksum')
    return facts   # type: ignore[no-any-return]


def _check_same(path: str, saved: Mapping[str, Any], variables: Mapping[str, tf.Variable]) -> None:
    """Raises ValueError unless the same keys are there, of the same shapes and dtypes."""
    here = {key: {'shape': v.shape.as_list(), 'dtype': v.dtype.name} for key, v in variables.items()}
    differences = [f'{what} {", ".join(keys[:10])}{f" and {len(keys) - 10} more" if len(keys) > 10 else ""}'
                   for what, keys in (('it lacks', sorted(here.keys() - saved.keys())),
                                      ('the experiment lacks', sorted(saved.keys() - here.keys()))) if keys]
    differences += [f'{key} is {saved[key]["dtype"]}{saved[key]["shape"]} in it and {here[key]["dtype"]}{here[key]["shape"]} here'
                    for key in sorted(here.keys() & saved.keys()) if here[key] != saved[key]]
    if differences:
        raise ValueError(f'{path} does not fit: {"; ".join(differences)}. A checkpoint restores only into the network and the learner '
                         'that wrote it: set them back, choose another logdir, or take the weights that fit by init rules.')


def _assign(path: str, pairs: Iterable[tuple[tf.Variable, str]]) -> None:
    """Assigns to each variable the tensor saved under a key, one after the other: never two copies of a whole network."""
    reader: Any = None
    for variable, key in pairs:
        try:
            reader = reader or tf.train.load_checkpoint(os.path.join(path, 'variables'))
            value = reader.get_tensor(_saved_name(key))
        except Exception as error:   # IndexError, RuntimeError, ValueError, tf.errors.OpError: whatever the reader meets
            raise DamagedError(_sentence(error)) from error
        with tf.device(variable.device):
            variable.assign(tf.cast(value, variable.dtype))


def _saved_name(key: str) -> str:
    """The name that tf.train.Checkpoint(variables={key: ...}) gives to a tensor."""
    return f'variables/{key.replace(".", "..").replace("/", ".S")}/.ATTRIBUTES/VARIABLE_VALUE'


def _checksum(facts: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(facts, sort_keys=True).encode())


def _sync(path: str) -> None:
    """Puts a file or directory on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sentence(error: Exception) -> str:
    return str(getattr(error, 'message', '') or error).strip().split('\n')[0].rstrip('.') or type(error).__name__
