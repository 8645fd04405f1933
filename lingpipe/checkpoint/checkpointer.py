"""Checkpointer: saves, keeps and restores the checkpoints of one experiment."""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from lingpipe.checkpoint import files, side_files
from lingpipe.checkpoint.best_record import Best, BestRecord
from lingpipe.checkpoint.copier import Copier
from lingpipe.checkpoint.directory import CheckpointDirectory, remove
from lingpipe.checkpoint.facts import DamagedError, Metadata, check_same, facts_of, read_facts
from lingpipe.checkpoint.pacing import Pacing
from lingpipe.checkpoint.unreadable import UnreadableError
from lingpipe.checkpoint.worker_files import WorkerFiles, hosts_of
from lingpipe.process.error_text import reason
from lingpipe.wording.counts import counted


class NotWholeError(ValueError):
    """The checkpoint that is asked for is not there, or damaged."""


class Checkpointer:
    """Saves and restores the checkpoints of one experiment.

    Attributes:
      directory: where they are.
    """

    def __init__(self, directory: str, keep: int = 3, is_writer: bool = True):
        """
        Args:
          directory: made if it is not there. A file in its place is set aside.
          keep: how many of the newest checkpoints stay. The best one stays besides.
          is_writer: whether this process may save. Only one does: an evaluation beside a run sets
            it to False.

        Raises:
          ValueError: keep is below 1.
          OSError: the directory cannot be made or cleaned up, or best.json cannot be read.
        """
        if keep < 1:
            raise ValueError(f'keep={keep} would keep no checkpoint; use 1 or more.')
        self.directory = directory
        self._directory = CheckpointDirectory(directory)
        self._best = BestRecord(directory)
        self._keep = keep
        self._is_writer = is_writer
        self._damaged: set[int] = set()
        self._written: set[int] = set()   # steps

        # The save in the background, if there is one.
        self._copier: Copier | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._pacing = Pacing()
        self._worker_files = WorkerFiles()

        if is_writer:
            try:
                side_files.make_directory(directory)
                self._directory.clean_up()
            except OSError as error:
                raise OSError(f'checkpoints cannot be kept in {directory}: {reason(error)}; '
                              'choose a logdir that can be written.') from error
            self._best.repair()

    def steps(self) -> list[int]:
        """Returns the steps that are saved, oldest first."""
        return self._directory.steps()

    # Saving.

    def save(self, step: int, variables: Mapping[str, tf.Variable],
             metadata: Metadata | None = None, spared: Iterable[int] = ()) -> str:
        """Writes the variables and the metadata, then removes checkpoints that are not kept.

        Args:
          step: the number of updates made. A checkpoint of the same step is replaced.
          variables: on whatever devices, by key: the path of the weight, or a name that tells what
            the variable is to which weight.
          metadata: whatever JSON can hold; `restore` returns it.
          spared: steps whose checkpoints stay this time, even if they would not be kept.

        Returns:
          The directory of the checkpoint.

        Raises:
          ValueError: the metadata is not JSON.
          OSError: the checkpoint cannot be written. What was saved before is still there.
          tf.errors.OpError: a variable cannot be read.
        """
        self.wait()
        facts = facts_of(step, variables, metadata or {})
        values = files.Values(lambda key: _value_of(variables[key]), hosts_of(variables))
        return self._write(step, facts, values, spared)

    def begin(self, step: int, variables: Mapping[str, tf.Variable],
              metadata: Metadata | None = None, spared: Iterable[int] = ()) -> None:
        """Copies the variables as `save` would write them, and lets a thread write the copy.

        Each value is copied in the memory of its own process. On a CPU a copy costs nothing until
        the next update of the variable, which then makes another; so weights and slots take their
        memory twice until the files are written.

        The thread takes about a twentieth of a core. It takes more if the next save may come as
        soon as this one did and would have to wait, and all it can get once somebody waits.
        `check`, `wait` and the next save raise its error.
        """
        self.wait()
        self._pacing.begin_save()
        values = files.Values(self.prepare(variables).copy(), hosts_of(variables))
        self._pacing.begin_background()
        self._thread = threading.Thread(target=self._write_in_background,
                                        args=(step, variables, metadata or {}, values, spared),
                                        name=f'checkpoint of step {step}', daemon=True)
        self._thread.start()

    def prepare(self, variables: Mapping[str, tf.Variable]) -> Copier:
        """Returns what copies these variables for `begin`.

        It is made once, which takes 1 ms a variable. Without this call, the first `begin` makes it.
        """
        if self._copier is None or not self._copier.is_of(variables):
            self._copier = Copier(variables)
        return self._copier

    def check(self) -> None:
        """Raises the error of a save in the background, if it has failed by now.

        Call it after each step. The first call tells when steps began, and so how soon the save
        after the first may come.
        """
        self._pacing.begin_steps()
        if self._thread is not None and not self._thread.is_alive():
            self.wait()

    def wait(self) -> None:
        """Waits for the end of a save in the background, and raises its error."""
        self._pacing.hurry()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

        error = self._error
        self._error = None
        if error is not None:
            raise error

    def abandon(self, limit_s: float) -> bool:
        """Waits for a save in the background, even one that fails; returns whether it has ended.

        Args:
          limit_s: time limit. A save that waits for a worker may never end.
        """
        self._pacing.hurry()
        if self._thread is not None:
            self._thread.join(limit_s)
        return self._thread is None or not self._thread.is_alive()

    def _write_in_background(self, step: int, variables: Mapping[str, tf.Variable],
                             metadata: Metadata, values: files.Values,
                             spared: Iterable[int]) -> None:
        """What the thread does."""
        self._pacing.begin_thread()
        try:
            self._write(step, facts_of(step, variables, metadata), values, spared)
        except BaseException as error:   # `check` raises it, whatever it is, in the main thread
            self._error = error

    def _write(self, step: int, facts: Metadata, values: files.Values,
               spared: Iterable[int]) -> str:
        assert self._is_writer, 'this Checkpointer only reads'
        temporary = self.path(step, 'tmp-')
        try:
            remove(temporary)
            files.write(temporary, facts, values, self._pacing, self._worker_files)
            self._directory.give_final_name(step, temporary, self._damaged)
        except tf.errors.OpError:
            remove(temporary)
            raise
        except OSError as error:
            remove(temporary)
            steps = self.steps()
            before = (f'that of step {steps[-1]} is still whole' if steps
                      else 'there is none before it')
            raise OSError(f'the checkpoint of step {step} cannot be written to {self.directory}: '
                          f'{files.sentence(error)}; {before}. Make room or choose another '
                          'logdir.') from error

        self._damaged.clear()
        self._written.add(step)
        self._directory.clean_up()
        self._prune([step, *spared])
        return self.path(step)

    # The best checkpoint.

    def mark_best(self, step: int, value: float, higher_is_better: bool = True,
                  measure: str = '') -> bool:
        """Keeps the checkpoint of `step` if its value is better than that of the best so far.

        Args:
          step: of the checkpoint.
          value: of its metric.
          higher_is_better: which of two values is the better one.
          measure: says what the value is. A best by another measure does not count.

        Returns:
          Whether it is.
        """
        self.wait()
        with self._best.kept_from_others():
            best = self._best.read() if self.has_best(measure) else None
            is_better = best is None or best.is_beaten_by(value, higher_is_better)
            if not is_better or value != value:   # NaN is never the best.
                return False
            if step not in self.steps():
                if step in self._written:   # Otherwise the log says why it was not written.
                    logging.warning('step %d has the best value, %g, but its checkpoint is gone; '
                                    'keep more of them', step, value)
                return False
            self._best.write(Best(step, value, measure))
        return True

    def has_best(self, measure: str = '') -> bool:
        """Whether a checkpoint is the best so far by this measure, or by one that is not known."""
        best = self._best.read()
        return (best is not None and best.step in self.steps()
                and (best.measure == measure or not best.measure or not measure))

    def best(self) -> tuple[int, float] | None:
        """Returns (step, value) of the best checkpoint, or None."""
        best = self._best.read()
        return (best.step, best.value) if best and best.step in self.steps() else None

    # Restoring.

    def restore(self, variables: Mapping[str, tf.Variable], step: int | None = None,
                check: Callable[[Metadata], None] = lambda metadata: None,
                reads_slots: bool = True) -> dict[str, Any] | None:
        """Assigns all variables from the newest checkpoint that is whole.

        Each newer checkpoint, which is damaged, is reported in the log.

        Args:
          variables: exactly those that were saved, but for slots that are not read.
          step: of another checkpoint than the newest, as for an evaluation.
          check: a function of the metadata, called before any variable is assigned. It raises
            ValueError to refuse the checkpoint.
          reads_slots: whether the variables have the optimizer's.

        Returns:
          The metadata that was saved, with 'step'; None if there is no checkpoint.

        Raises:
          NotWholeError: there is no checkpoint of `step`, or it is damaged.
          UnreadableError: the system does not let this process read one that may be whole.
          ValueError: keys, shapes or dtypes differ, all are damaged, or `check` raises it.
        """
        steps = self.steps()
        if step is not None and step not in steps:
            raise NotWholeError(f'{self.directory} has no checkpoint of step {step}; it has '
                                f'{", ".join(map(str, steps)) or "none"}.')

        failures = []
        for candidate in [step] if step is not None else reversed(steps):
            path = self.path(candidate)
            try:
                return self._restore_one(path, variables, check, reads_slots)
            except DamagedError as error:
                failures.append(f'{path}: {error}')
                self._damaged.add(candidate)
                logging.warning('checkpoint %s is damaged and not used: %s', path, error)

        if step is not None and failures:
            raise NotWholeError(f'{failures[0]}. {self._newest_whole_text()}')
        if failures:
            raise ValueError(f'of {counted(len(failures), "checkpoint")}, none can be read; '
                             'variables may be changed in part. Restore the files from a copy, or '
                             f'choose another logdir to start anew. {" ".join(failures)}')
        return None

    def _restore_one(self, path: str, variables: Mapping[str, tf.Variable],
                     check: Callable[[Metadata], None], reads_slots: bool) -> dict[str, Any]:
        """Assigns all variables from one checkpoint; returns and raises as `restore` does.

        Raises:
          DamagedError: the checkpoint is damaged; some variables may be assigned.
        """
        facts = read_facts(path)
        check(facts['metadata'])
        saved = {key: kind for key, kind in facts['variables'].items()
                 if reads_slots or not key.startswith('optimizer/')}
        check_same(path, saved, variables)
        pairs = ((variable, key) for key, variable in variables.items())
        files.assign(path, facts['variables'], pairs, self._worker_files)

        if 'files' not in facts:
            logging.warning('checkpoint %s was written by an older lingpipe, which did not note '
                            'which files belong together; its tensors had the right checksums',
                            path)
        return {**facts['metadata'], 'step': facts['step']}

    def _newest_whole_text(self) -> str:
        """Says which checkpoint could be used in place of one that is damaged."""
        for step in reversed(self.steps()):
            with contextlib.suppress(DamagedError, UnreadableError):
                read_facts(self.path(step))
                return f'The newest whole checkpoint is that of step {step}: name that one.'
        return 'No other checkpoint can be used: restore the files from a copy.'

    def newest_metadata(self) -> dict[str, Any]:
        """Returns the metadata of the newest checkpoint whose files belong together, or {}."""
        for step in reversed(self.steps()):
            with contextlib.suppress(DamagedError):
                return dict(read_facts(self.path(step))['metadata'])
        return {}

    # The directory.

    def path(self, step: int, prefix: str = '') -> str:
        """Returns the directory of a step's checkpoint; with a prefix, of one not in use."""
        return self._directory.of(step, prefix)

    def prune(self) -> None:
        """Removes the checkpoints that were spared and are not kept otherwise."""
        self.wait()
        self._prune([])

    def _prune(self, spared: Iterable[int]) -> None:
        """Removes the checkpoints that are neither among the newest, nor the best, nor spared."""
        try:
            best = self.best()
            newest = self.steps()[-self._keep:]
        except UnreadableError as error:
            logging.warning('no checkpoint is removed, since the best is not known: %s', error)
            return
        self._directory.prune({*spared, *newest, *([best[0]] if best else [])})


def _value_of(variable: tf.Variable) -> tf.Tensor:
    """Returns the value of a variable in the memory of its own device."""
    with tf.device(variable.device):
        return variable.read_value()
