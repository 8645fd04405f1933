"""Watching: evaluates each new checkpoint of a run that another process trains.

    --mode=eval --watch --logdir=LOGDIR

The checkpoints that are there come first, the oldest before the others. What evaluations.jsonl has
is not evaluated again, so a watch may be stopped and started. Two watches of one logdir do no harm,
but both may evaluate the same checkpoint. The best checkpoint is marked, so that the trainer keeps
it.

The watch does not take the lock of the logdir. It ends when it has evaluated the checkpoint of the
last step, or when for a while nobody has trained there and nothing was left to evaluate.
"""
from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from lingpipe.api.evaluating import Evaluating, check_inputs
from lingpipe.checkpoint.checkpointer import NotWholeError
from lingpipe.checkpoint.facts import Metadata
from lingpipe.checkpoint.unreadable import UnreadableError
from lingpipe.process.error_text import reason
from lingpipe.training import logdir_lock, recorded_params
from lingpipe.training.best_checkpoint import BestCheckpoint
from lingpipe.training.evaluation_log import EvaluationLog
from lingpipe.training.experiment import Experiment
from lingpipe.training.newest_checkpoint import checkpoints_in

LOOK_EVERY_S = 2.   # How often the directory of checkpoints is read.


class _Stop(Protocol):
    @property
    def name(self) -> str:
        """The name of the signal that has come, or ''."""


class Watch:
    """Evaluates the checkpoints of a logdir as they appear."""

    def __init__(self, experiment: Experiment, logdir: str, stop: _Stop,
                 restored: Callable[[int], tuple[Evaluating, Metadata]]):
        """
        Args:
          experiment: has the inputs.
          logdir: of the run.
          stop: ends the watch.
          restored: gives the program the weights of a step; returns what evaluates them, and the
            metadata of the checkpoint.

        Raises:
          ValueError: there is no eval input.
        """
        check_inputs(experiment)
        params = experiment.params
        self._logdir, self._stop, self._restored = logdir, stop, restored
        self._inputs = sorted(experiment.eval_inputs)
        self._num_steps = params.train.num_steps
        self._patience_s = params.train.worker_timeout_s
        self._checkpoints, self._log = checkpoints_in(logdir), EvaluationLog(
            logdir, params.eval_inputs)
        best_input = params.train.best_input or self._inputs[0]
        self._best = BestCheckpoint(
            self._checkpoints, params.task, best_input, self._log.data_of(best_input))
        # Checkpoints that could not be read: step -> when it was written. The trainer may write it
        # again.
        self._passed_over: dict[int, float] = {}

    def run(self, say: Callable[[str], object]) -> None:
        """Evaluates until the run has ended or a signal comes.

        Args:
          say: shows a line.

        Raises:
          ValueError: a checkpoint does not fit the experiment, or none has come.
          OSError: a checkpoint or the log cannot be read, or the log cannot be written.
        """
        self._log.check_readable()
        last_seen_s = time.monotonic()
        steps = self._checkpoints.steps()
        if not steps:
            say(f'{self._logdir} has no checkpoint yet; the watch waits for the first')
        with self._writing():
            self._best.restore_mark(self._log, max(steps, default=0))
        while not self._stop.name:
            step = self._next_step()
            if step is not None:
                self._evaluate(step, say)
                last_seen_s = time.monotonic()
            elif self._has_last_step():
                say(f'the run has ended, and {self._what_is_evaluated()}')
                return
            elif logdir_lock.is_held(self._logdir):
                last_seen_s = time.monotonic()
            elif time.monotonic() - last_seen_s > self._patience_s:
                if not self._checkpoints.steps():
                    raise ValueError(f'nobody has trained in {self._logdir} for '
                                     f'{self._patience_s:g} s (train.worker_timeout_s), and it has '
                                     'no checkpoint; correct --logdir, or start the run.')
                say(f'nobody has trained in {self._logdir} for {self._patience_s:g} s '
                    f'(train.worker_timeout_s), and {self._what_is_evaluated()}: the watch '
                    'ends; start it again with the run')
                return
            if step is None:
                self._wait()

    def _has_last_step(self) -> bool:
        """Whether the newest checkpoint is the last of its run, whose Params it keeps."""
        recorded = recorded_params.recorded(self._logdir)
        num_steps = recorded.train.num_steps if recorded else self._num_steps
        return max(self._checkpoints.steps(), default=-1) >= num_steps

    def _wait(self) -> None:
        """Waits until it is time to look again, or a signal comes."""
        deadline_s = time.monotonic() + LOOK_EVERY_S
        while not self._stop.name and time.monotonic() < deadline_s:
            time.sleep(0.05)

    def _next_step(self) -> int | None:
        """Returns the oldest step that is not evaluated on all inputs; None if there is none."""
        done = {(line['step'], line['input']) for line in self._log.read()}
        return next((step for step in self._checkpoints.steps()
                     if self._passed_over.get(step) != self._written_s(step)
                     and not all((step, name) in done for name in self._inputs)), None)

    def _written_s(self, step: int) -> float:
        """When the checkpoint of a step was written; 0 if it is gone by now."""
        try:
            return os.path.getmtime(self._checkpoints.path(step))
        except OSError:
            return 0.

    def _what_is_evaluated(self) -> str:
        """Says that all checkpoints are evaluated, or which of those that are there are not."""
        damaged = [step for step in self._checkpoints.steps() if step in self._passed_over]
        if not damaged:
            return 'all its checkpoints are evaluated'
        return (f'its checkpoints are evaluated but for {", ".join(map(str, damaged))}, which '
                'cannot be read')

    def _evaluate(self, step: int, say: Callable[[str], object]) -> None:
        """Evaluates the checkpoint of a step on the inputs on which it was not."""
        written_s = self._written_s(step)
        self._passed_over.pop(step, None)
        try:
            evaluating, metadata = self._restored(step)
        except (NotWholeError, UnreadableError) as error:
            is_gone = step not in self._checkpoints.steps()
            if isinstance(error, UnreadableError) and not is_gone:
                raise
            self._passed_over[step] = written_s
            say(f'step {step}: its checkpoint was removed before it was evaluated' if is_gone
                else f'step {step} is passed over: {error}')
            return

        evaluating.check(metadata)
        for name in self._inputs:
            if self._log.has(step, name):
                continue
            metrics = evaluating.on(name, step, lambda: bool(self._stop.name))
            if metrics is None:
                return
            if self._log.has(step, name):   # Another watch was faster.
                continue
            # What is in the log is not marked again.
            with self._writing():
                if name == self._best.input_name and step in self._checkpoints.steps():
                    if note := self._best.mark(step, metrics):
                        say(f'step {step}{note}')
                self._log.add(step, name, metrics)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Says of an OSError what a watch writes, and where."""
        try:
            yield
        except UnreadableError:
            raise
        except OSError as error:
            raise OSError(f'{self._logdir} cannot be written, and a watch keeps its evaluations '
                          f'and the mark of the best checkpoint there: {reason(error)}; make room '
                          'or let this user write there, and start the watch again.') from error
