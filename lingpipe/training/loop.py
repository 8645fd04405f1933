"""The loop: steps, with checkpoints, evaluations and all that a person sees of them.

A run that is killed at any moment and started again ends with the same bits as a run that was not
interrupted. A checkpoint holds the weights, slots, averages and the step, from which all else
follows: the next example is number step * examples_per_step of the input, and seeds follow from
(experiment seed, step, micro-batch, layer). A step whose loss or gradient is not finite, or whose
examples all have weight 0, updates nothing but counts as a step, so that this stays true. After a
step that was not finite, the weights of the newest checkpoint may be at fault. Until a step is
finite again, no checkpoint is removed, and one is written only for an evaluation or at the end.

If a file cannot be written, for example because the disk is full, the run says so in one line and
continues. Only a failed last checkpoint is fatal.

    LOGDIR/params.txt, lock      the Params; who trains there (both written by the trainer)
    LOGDIR/checkpoints/          see checkpoint/
    LOGDIR/tensorboard/          train, and eval_NAME for every eval input
    LOGDIR/timeline/             a picture and a trace of a measured step, and its breakdown
    LOGDIR/pictures/             what the problem draws of the newest evaluation of each eval input
    LOGDIR/evaluations.jsonl, train.log, initialization.txt
"""
from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator

from lingpipe.checkpoint import Checkpointer
from lingpipe.checkpoint.room import check_room
from lingpipe.cluster.returned import ReturnedWorkerError
from lingpipe.input import InputMeter
from lingpipe.pipeline.execution.program import Program
from lingpipe.process.stop_signals import StopSignals
from lingpipe.training.announced_checkpoints import AnnouncedCheckpoints
from lingpipe.training.experiment import Experiment
from lingpipe.training.hooks.hook import HookedRun
from lingpipe.training.hooks.hook_calls import HookCalls
from lingpipe.training.loop_options import LoopOptions
from lingpipe.training.outcome import Outcome
from lingpipe.training.remedy import remedy
from lingpipe.training.reporting.plan_table import overview
from lingpipe.training.reporting.progress import Progress
from lingpipe.training.reporting.run_report import TENSORBOARD, RunReport
from lingpipe.training.reporting.step_summaries import StepSummaries
from lingpipe.training.reporting.timeline import TimelineReport
from lingpipe.training.run import Run
from lingpipe.training.run_evaluations import RunEvaluations
from lingpipe.training.saved_state import SavedState
from lingpipe.training.site import THIS_PROCESS, Site
from lingpipe.training.skipped_steps import (
    NonFiniteError,
    SkippedSteps,
    numbers_text,
    skipped_text,
)
from lingpipe.training.step_counts import StepCounts
from lingpipe.training.steps import InputEndedError, Steps
from lingpipe.training.timed_steps import TimedSteps, soon_after
from lingpipe.training.traced_network import TracedNetwork, make_traced_network
from lingpipe.training.training_batches import Batch, TrainingBatches


class TrainLoop:
    """Trains an experiment in a logdir, once.

    Attributes:
      program: the network on its devices.
    """

    def __init__(self, experiment: Experiment, logdir: str, options: LoopOptions,
                 site: Site = THIS_PROCESS, network: TracedNetwork | None = None):
        """
        Args:
          experiment: what is trained.
          logdir: where all files go.
          options: how this process trains.
          site: where it trains.
          network: the traced network of this experiment, if there is one already. A run without a
            checkpoint begins with its weights.

        Raises:
          ValueError: an input, a device or train.best_input is wrong.
        """
        self._experiment, self._logdir, self._options = experiment, logdir, options
        self._site, self._params = site, experiment.params.train
        inputs = experiment.eval_inputs if options.has_evaluation else {}
        best_input = self._params.best_input or min(experiment.eval_inputs, default='')
        if inputs and best_input not in inputs:
            raise ValueError(f'train.best_input={best_input!r} is no eval input; there are '
                             f'{", ".join(sorted(inputs))}.')

        os.makedirs(logdir, exist_ok=True)
        checkpointer = Checkpointer(os.path.join(logdir, 'checkpoints'), self._params.keep)
        self._report = RunReport(logdir, ['train', *(f'eval_{name}' for name in inputs)])
        network = network or make_traced_network(experiment, logdir, site)
        self.program: Program = network.program
        hooks = [params.instantiate() for params in experiment.params.hooks]
        self._hooks_left_out = [
            type(hook).__name__ for hook in hooks if hook.needs_evaluations and not inputs]
        self._hooks = HookCalls(
            [hook for hook in hooks if inputs or not hook.needs_evaluations], self._hooked_run())
        self._run = Run(
            experiment, logdir, site, self.program, checkpointer, self._report, self._hooks)
        self._batches = TrainingBatches(experiment, self.program, logdir)
        self._saved = SavedState(
            checkpointer, self.program, experiment,
            lambda text: self._report.say(f'step {self._counts.step}: {text}'),
            options.allow_change, options.check_logdir, options.may_begin)
        self._checkpoints = AnnouncedCheckpoints(self._run, self._saved, self._batches)
        self._summaries = StepSummaries(
            self._report, self._params.summary_every_steps, self._params.num_steps)
        self._evaluations = RunEvaluations(
            self._run, self._saved, network.evaluations, inputs, best_input)

        self._counts = StepCounts()   # changes from step to step
        self._stop_reason = ''        # of a hook

    def run(self) -> Outcome:
        """Trains until num_steps or a signal.

        Raises:
          NonFiniteError: learner.max_nonfinite_steps in a row, or all steps of this run.
          ValueError: the checkpoints do not fit, the input ended, or no step of this run had an
            example that counts.
          HookError: a hook has failed that stops the run then.
          OSError: the last checkpoint cannot be written, or there is no room for one.
        """
        stop_of_caller = self._options.stop
        with contextlib.nullcontext(stop_of_caller) if stop_of_caller else StopSignals() as stop:
            restored = self._saved.restore(self._logdir, self._options.held)
            self._options.when_restored()
            self._counts = restored.counts
            steps = Steps(self._run, self._batches, self._timed_steps())
            with self._report.shown_by(self._make_progress()):
                try:
                    batches = self._start(restored.text, stop)
                    try:
                        self._train(steps, batches, stop)
                    except (ValueError, ArithmeticError, OSError):
                        self._saved.check(is_at_end=True)
                        raise
                    return self._finish(steps.timeline, stop)
                except BaseException:
                    self._hooks.end(self._counts.step, 'failed')
                    raise

    def has_ended(self) -> bool:
        """Whether everything that ran beside `run` has ended, once `run` has raised an error.

        It waits a few seconds for that.
        """
        self._report.close()
        return self._run.checkpointer.abandon(limit_s=5.)

    # The start.

    def _timed_steps(self) -> TimedSteps:
        p, step = self._params, self._counts.step
        timed = TimedSteps(p.timeline_step)
        if self._options.has_timeline and p.timeline_step is None:
            timed = soon_after(step, p.num_steps)
        return timed

    def _make_progress(self) -> Progress:
        return Progress(self._counts.step, self._params.num_steps,
                        self._experiment.examples_per_step,
                        os.path.join(self._logdir, 'train.log'), self._params.log_every_s,
                        self._options.out)

    def _start(self, where_from: str, stop: StopSignals) -> Iterator[Batch]:
        """Logs the start, makes an evaluation that a kill prevented, and returns the batches."""
        self._say_start(where_from)
        batches = self._checked_batches()
        step = self._counts.step
        with self._report.optional(TENSORBOARD, step):
            self._report.summaries['train'].text('params', self._experiment.params.to_text())
        self._evaluations.go_on_from(step)
        self._hooks.start(step)
        if step and self._evaluations.is_due(step):
            self._evaluations.make(step, stop)
        self._check_hooks()
        return batches

    def _hooked_run(self) -> HookedRun:
        return HookedRun(self._logdir, self._experiment.params, self.program.variables(),
                         lambda: self._evaluations.logged(), self._report.say,
                         self._stop_by_hook)

    def _say_start(self, where_from: str) -> None:
        """Logs the plan, the inputs and where the weights come from."""
        step, say = self._counts.step, self._report.say
        if self._options.has_overview:
            say(overview(self.program.plan, self._experiment.params.train_input.batch_size))
            for remark in [*self._experiment.task.remarks(), *self._evaluations.remarks()]:
                say(remark)
        inputs = {'train_input': self._experiment.train_input, **self._evaluations.inputs}
        for name, source in inputs.items():
            if text := source.statistics_text():
                say(f'{name}: {text}')
        say(where_from)
        for name in self._hooks_left_out:
            say(f'{name} is left out, since this run evaluates nothing')
        if step >= self._params.num_steps:
            say(f'{self._logdir} is at step {step} already, and train.num_steps is '
                f'{self._params.num_steps}: no step is left to train; give --steps above {step} to '
                f'train on.')

    def _checked_batches(self) -> Iterator[Batch]:
        """Checks all that can be known before the first step; returns what is left to train on.

        Raises:
          ValueError: the network cannot be trained or evaluated on the first mini-batch of an
            input.
          OSError: there is no room for a checkpoint.
        """
        step = self._counts.step
        is_training = step < self._params.num_steps
        if is_training or self._evaluations.is_due(step):
            self._site.begin('the look at the inputs')
            self._evaluations.check()
        if not is_training:
            return iter(())
        check_room(self._run.checkpointer.directory, self.program.variables())
        return self._batches.after(step)

    # Steps.

    def _train(self, steps: Steps, mini_batches: Iterator[Batch], stop: StopSignals) -> None:
        """Makes the steps that are left, until a signal comes or a hook stops the run."""
        p = self._params
        if self._counts.step >= p.num_steps:
            return
        if p.saves_before_end(self._counts.step):
            self._saved.prepare()

        batches = InputMeter(mini_batches)
        while self._counts.step < p.num_steps and not stop.name and not self._stop_reason:
            self._leave_for_returned_worker()
            start_s = time.perf_counter()
            try:
                results, gradients = steps.make(self._counts.step, batches)
            except InputEndedError:
                self._saved.save(self._counts, is_at_end=True)
                raise
            self._checkpoints.check()
            self._count(results)
            step = self._counts.step
            if p.check_replicas_every_steps and step % p.check_replicas_every_steps == 0:
                self.program.check_replicas()
            self._report.progress.update(step, time.perf_counter() - start_s, results)
            self._summaries.write(step, results, self._counts.num_nonfinite, batches)
            self._hooks.step(step, results, gradients)

            is_evaluated = self._evaluations.is_due(step)
            is_due = step % p.checkpoint_every_steps == 0
            if is_evaluated or is_due and not self._counts.num_nonfinite_in_a_row:
                self._checkpoints.save(self._counts)
            if is_evaluated:
                self._evaluations.make(step, stop)
            self._check_hooks()

    def _leave_for_returned_worker(self) -> None:
        """Raises ReturnedWorkerError if a worker answers again and this step is saved."""
        returned, step = self._site.returned, self._counts.step
        if returned is None or not returned.text or not self._saved.is_saved(step):
            return
        self._checkpoints.check(is_at_end=True)
        if self._saved.is_saved(step):   # It is whole on the disk.
            self._hooks.end(step, 'stopped')
            self._report.close()
            raise ReturnedWorkerError(returned.text)

    def _count(self, results: dict[str, float]) -> None:
        """Counts a step, and says if it was skipped.

        Raises:
          NonFiniteError: too many steps in a row, or all steps of the run, were not finite.
          ValueError: an example is at fault, or no step of the run updated anything.
        """
        before, self._counts = self._counts, self._counts.after(results)
        limits = SkippedSteps(self._params.num_steps,
                              self._experiment.params.task.learner.max_nonfinite_steps)
        bad_example = ''
        if results['is_finite']:
            limits.check_weight(self._counts)
        else:
            bad_example = self._batches.check_update(before.step)
            if why := limits.nonfinite_failure(self._counts):
                self._fail(results, '; '.join(filter(None, [why, bad_example])))
        if text := skipped_text(before, self._counts, results):
            self._report.say('; '.join(filter(None, [text, bad_example])))

    def _fail(self, results: dict[str, float], why: str) -> None:
        """Raises NonFiniteError, whose message says what a person can do."""
        counts = self._counts
        with self._report.optional(TENSORBOARD, counts.step):
            self._report.summaries['train'].scalars(
                counts.step, {'nonfinite_steps': counts.num_nonfinite})
        self._saved.check(is_at_end=True)
        last_finite = counts.step - counts.num_nonfinite_in_a_row
        advice = remedy(
            self._experiment.params, self._run.checkpointer, self._logdir, last_finite)
        raise NonFiniteError(
            f'step {counts.step} has {numbers_text(results)}, and {why}. {advice}')

    # Hooks.

    def _stop_by_hook(self, reason: str) -> None:
        if not self._stop_reason:
            self._stop_reason = reason
            self._report.say(f'a hook stops the run after step {self._counts.step}: {reason}')

    def _check_hooks(self) -> None:
        """Raises HookError, after a checkpoint, if a hook has failed that ends the run."""
        if self._hooks.failure:
            if self._counts.step:
                self._checkpoints.save(self._counts, is_at_end=True)
            raise self._hooks.failure

    # The end.

    def _finish(self, timeline: TimelineReport | None, stop: StopSignals) -> Outcome:
        """Saves what is not saved, removes what is not needed, and says how the run ended."""
        counts, checkpointer = self._counts, self._run.checkpointer
        self._site.begin('the end of the run')
        self._saved.check(is_at_end=True, what_follows='The last step is saved now.')
        if stop.name or self._stop_reason or counts.step >= self._params.num_steps:
            self._checkpoints.save(counts, is_at_end=True)
            self._evaluations.restore_mark(counts.step)   # It may be evaluated, and not marked.
            if self._stop_reason and not stop.name and self._evaluations.is_missing(counts.step):
                self._evaluations.make(counts.step, stop)
            metrics = self._evaluations.metrics_of_this_process(counts.step).values()
            is_good = all(math.isfinite(one['loss']) for one in metrics)
            if is_good and not stop.name and not counts.num_nonfinite_in_a_row:
                checkpointer.prune()
        if stop.name:
            self._report.say(f'{stop.name}: stopped after step {counts.step}, whose checkpoint is '
                             f'saved; the same command goes on from there')
        self._checkpoints.check(is_at_end=True)
        self._hooks.end(counts.step, 'stopped' if stop.name else 'done')
        self._check_hooks()
        self._report.close()
        return Outcome(
            counts.step, counts.num_nonfinite, stop.name,
            self._evaluations.metrics_after(counts.step), checkpointer.best(),
            timeline, self._evaluations.pictures, self._stop_reason)
