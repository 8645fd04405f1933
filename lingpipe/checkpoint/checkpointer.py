"""Checkpointer: the checkpoints of one experiment, which of them are kept, and which is restored."""
from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from lingpipe.checkpoint import files, side_files
from lingpipe.checkpoint.copier import Copier

_NICENESS = 10         # of the thread that writes: a tenth of a processor that others want
_RESTS = 19.           # times as long as it works: a twentieth of a processor, whether others want it or not
_SPREAD = 0.8          # of the time from one checkpoint to the next, at most: rests are shorter where the next would have to wait
_HEAD_START_S = 0.2    # of the next step: while it begins, it and that thread would take turns at Python's lock


class Checkpointer:
    """Saves and restores the checkpoints of one experiment.

    Attributes:
      directory: where they are.
    """

    def __init__(self, directory: str, keep: int = 3, is_writer: bool = True):
        """
        Args:
          directory: made if it is not there; a file there is set aside.
          keep: how many of the newest stay; the best stays besides.
          is_writer: whether this process may save. Only one does: an evaluation beside a training sets it to False.

        Raises:
          ValueError: keep is below 1.
          OSError: the directory cannot be made or cleaned up.
        """
        if keep < 1:
            raise ValueError(f'keep={keep} would keep no checkpoint; use 1 or more.')
        self.directory = directory
        self._keep, self._is_writer = keep, is_writer
        self._damaged: set[int] = set()
        self._copier: Copier | None = None
        self._thread: threading.Thread | None = None
        self._began_s = -math.inf         # when the last save was begun; before, when `check` was first called
        self._due_s = math.inf            # when it should have ended
        self._rested_s = 0.               # the processor time of its thread when that last rested
        self._hurry = threading.Event()   # somebody waits for what is written
        self._error: BaseException | None = None
        if is_writer:
            try:
                side_files.make_directory(directory)
                self._clean_up()
                self._repair_best()
            except OSError as error:
                raise OSError(f'checkpoints cannot be kept in {directory}: {error}; choose a logdir that can be written.') from error

    def steps(self) -> list[int]:
        """The steps that are saved, oldest first."""
        names = os.listdir(self.directory) if os.path.isdir(self.directory) else []
        return sorted(int(match[1]) for name in names if (match := files.STEP_NAME.fullmatch(name))
                      and os.path.isdir(os.path.join(self.directory, name)))

    # Saving.

    def save(self, step: int, variables: Mapping[str, tf.Variable], metadata: Mapping[str, Any] | None = None,
             spared: Iterable[int] = ()) -> str:
        """Writes the variables, on whatever devices they are, and the metadata; then removes checkpoints that are not kept.

        Args:
          step: the number of updates made. A checkpoint of the same step is replaced.
          variables: by key: the path of the weight, or a name that tells what it is to which weight.
          metadata: whatever JSON can hold; `restore` returns it.
          spared: steps whose checkpoints stay this time, whatever their number.

        Returns:
          The directory of the checkpoint.

        Raises:
          ValueError: metadata that is not JSON.
          OSError: it cannot be written; what was saved before is still there.
          tf.errors.OpError: a variable cannot be read.
        """
        self.wait()
        facts = files.facts_of(step, variables, metadata or {})
        return self._write(step, facts, lambda key: variables[key].read_value(), spared)

    def begin(self, step: int, variables: Mapping[str, tf.Variable], metadata: Mapping[str, Any] | None = None,
              spared: Iterable[int] = ()) -> None:
        """As save, but returns when every variable is copied, in the memory of its own process; a thread writes the copy.

        On a CPU a copy costs nothing until the variable is next updated, which then makes another; so weights and slots take their memory
        twice until the files are written. The thread takes about a twentieth of a processor; more, if the next save comes as soon as this
        one did and would have to wait; all it can get, when somebody waits. `check`, `wait` and the next save raise what it met.
        """
        self.wait()
        now_s = time.monotonic()
        self._began_s, self._due_s = now_s, now_s + _SPREAD * (now_s - self._began_s)
        read = self.prepare(variables).copy()
        self._hurry.clear()
        self._thread = threading.Thread(target=self._write_beside, args=(step, variables, metadata or {}, read, spared),
                                        name=f'checkpoint of step {step}', daemon=True)
        self._thread.start()

    def prepare(self, variables: Mapping[str, tf.Variable]) -> Copier:
        """Makes ready what `begin` copies these variables with, at 1 ms each, which its first call would take otherwise."""
        if self._copier is None or not self._copier.is_of(variables):
            self._copier = Copier(variables)
        return self._copier

    def check(self) -> None:
        """Raises the error of a save that was begun, if it has failed by now. To be called after each step: the first call tells when
        they began, and so how soon the save after the first may come."""
        if self._began_s == -math.inf:
            self._began_s = time.monotonic()
        if self._thread is not None and not self._thread.is_alive():
            self.wait()

    def wait(self) -> None:
        """Waits for the end of a save that was begun, and raises its error."""
        self._hurry.set()
        if self._thread is not None:
            self._thread.join()
        self._thread, error, self._error = None, self._error, None
        if error is not None:
            raise error

    def _write_beside(self, step: int, variables: Mapping[str, tf.Variable], metadata: Mapping[str, Any],
                      read: Callable[[str], tf.Tensor], spared: Iterable[int]) -> None:
        """What the thread does."""
        self._hurry.wait(min(_HEAD_START_S, (self._due_s - time.monotonic()) / 4))
        self._rested_s = time.thread_time()
        with contextlib.suppress(OSError):
            if sys.platform == 'linux':   # where it is the priority of a thread: steps come first
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        try:
            self._write(step, files.facts_of(step, variables, metadata), read, spared)
        except BaseException as error:   # whatever it is, `check` raises it where somebody looks
            self._error = error

    def _write(self, step: int, facts: Mapping[str, Any], read: Callable[[str], tf.Tensor], spared: Iterable[int]) -> str:
        assert self._is_writer, 'this Checkpointer only reads'
        final, temporary = self.path(step), self.path(step, 'tmp-')
        try:
            _remove(temporary)
            files.write(temporary, facts, read, self._rest)
            for damaged in self._damaged & set(self.steps()):   # or they would count as the newest
                os.replace(self.path(damaged), side_files.free_name(self.path(damaged, 'bad-')))
            if os.path.isdir(final):
                os.replace(final, self.path(step, 'old-'))
            side_files.make_way(final)
            os.replace(temporary, final)
            files.sync(self.directory)
        except tf.errors.OpError:
            _remove(temporary)
            raise
        except OSError as error:
            _remove(temporary)
            saved = self.steps()
            raise OSError(f'the checkpoint of step {step} cannot be written to {self.directory}: {files.sentence(error)}; '
                          f'{f"that of step {saved[-1]} is still whole" if saved else "there is none before it"}. Make room or '
                          'choose another logdir.') from error
        self._damaged.clear()
        self._clean_up()
        self._prune([step, *spared])
        return final

    def _rest(self, num_left: int) -> None:
        """Leaves the processor to others, as long as the work since the last rest wants it; so many rests and parts of work are left."""
        worked_s = time.thread_time() - self._rested_s
        self._hurry.wait(max(0., min(_RESTS * worked_s, (self._due_s - time.monotonic()) / num_left)))
        self._rested_s = time.thread_time()

    def mark_best(self, step: int, value: float, higher_is_better: bool = True) -> bool:
        """Keeps the checkpoint of `step`, if value is better than that of the best so far; returns whether it is."""
        self.wait()
        best = self.best()
        if not value == value or best is not None and not (value > best[1] if higher_is_better else value < best[1]):
            return False
        if step not in self.steps():
            logging.warning('step %d has the best value, %g, but its checkpoint is gone; keep more of them', step, value)
            return False
        side_files.write_text(self._best_path, json.dumps({'step': step, 'value': value}))
        files.sync(self.directory)
        return True

    def best(self) -> tuple[int, float] | None:
        """(step, value) of the best checkpoint, or None."""
        best = self._read_best()
        return best if best and best[0] in self.steps() else None

    @property
    def _best_path(self) -> str:
        return os.path.join(self.directory, 'best.json')

    def _read_best(self) -> tuple[int, float] | None:
        """What best.json says; None if there is none that can be read."""
        try:
            with open(self._best_path, encoding='utf-8') as file:
                best = json.load(file)
            step, value = best['step'], best['value']
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        is_right = type(step) is int and type(value) in (int, float) and value == value
        return (step, float(value)) if is_right else None

    def _repair_best(self) -> None:
        """Sets best.json aside if it cannot be read; the caller may know the best from elsewhere."""
        if os.path.lexists(self._best_path) and self._read_best() is None:
            side_files.set_aside(self._best_path, 'it does not name the best checkpoint')

    # Restoring.

    def restore(self, variables: Mapping[str, tf.Variable], step: int | None = None,
                check: Callable[[Mapping[str, Any]], None] = lambda metadata: None) -> dict[str, Any] | None:
        """Assigns all variables from the newest checkpoint that is whole; each that is not is reported in the log.

        Args:
          variables: exactly those that were saved.
          step: of another checkpoint than the newest, as for an evaluation.
          check: is given the metadata before any variable is assigned; raises ValueError to refuse the checkpoint.

        Returns:
          The metadata that was saved, with 'step'; None if there is no checkpoint.

        Raises:
          ValueError: keys, shapes or dtypes differ; `step` is not there; checkpoints are there and none is whole; or what `check`
            raises.
        """
        steps = self.steps()
        if step is not None and step not in steps:
            raise ValueError(f'{self.directory} has no checkpoint of step {step}; it has {", ".join(map(str, steps)) or "none"}.')
        failures = []
        for candidate in [step] if step is not None else reversed(steps):
            path = self.path(candidate)
            try:
                facts = files.read_facts(path)
                check(facts['metadata'])
                files.check_same(path, facts['variables'], variables)
                files.assign(path, ((variable, key) for key, variable in variables.items()))
                if 'files' not in facts:
                    logging.warning('checkpoint %s was written by an older lingpipe, which did not note which files belong '
                                    'together; its tensors had the right checksums', path)
                return {**facts['metadata'], 'step': facts['step']}
            except files.DamagedError as error:
                failures.append(f'{path}: {error}')
                self._damaged.add(candidate)
                logging.warning('checkpoint %s is damaged and not used: %s', path, error)
        if failures:
            raise ValueError(f'none of the {len(failures)} checkpoints can be read; variables may be changed in part. Restore the files '
                             f'from a copy, or choose another logdir to start anew. {" ".join(failures)}')
        return None

    def newest_metadata(self) -> dict[str, Any]:
        """The metadata of the newest checkpoint whose files belong together; {} if there is none."""
        for step in reversed(self.steps()):
            with contextlib.suppress(files.DamagedError):
                return dict(files.read_facts(self.path(step))['metadata'])
        return {}

    # The directory.

    def path(self, step: int, prefix: str = '') -> str:
        """The directory of a step's checkpoint; of one that is not in use, with a prefix."""
        return os.path.join(self.directory, f'{prefix}step-{step:08d}')

    def _clean_up(self) -> None:
        """Removes what a kill has left, and finishes a replacement that it has interrupted."""
        for name in sorted(os.listdir(self.directory)):
            path, replaced = os.path.join(self.directory, name), os.path.join(self.directory, name[4:])
            if name.startswith('old-') and os.path.isdir(path) and not os.path.isdir(replaced):
                side_files.make_way(replaced)
                os.replace(path, replaced)
            elif name.startswith(('tmp-', 'old-')):
                _remove(path)

    def prune(self) -> None:
        """Removes the checkpoints that were spared and are not kept otherwise."""
        self.wait()
        self._prune([])

    def _prune(self, spared: Iterable[int]) -> None:
        best = self.best()
        kept = {*spared, *self.steps()[-self._keep:], *([best[0]] if best else [])}
        for step in self.steps():
            if step not in kept:
                with contextlib.suppress(OSError):   # an evaluation may be reading it; the next save tries again
                    os.replace(self.path(step), self.path(step, 'tmp-gone-'))
                    shutil.rmtree(self.path(step, 'tmp-gone-'))


def _remove(path: str) -> None:
    """Removes a directory with all that is in it, or a file, if there is one; a warning says what cannot be removed."""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.remove(path)
    except OSError as error:
        logging.warning('%s cannot be removed: %s; nothing needs it', path, error.strerror)
