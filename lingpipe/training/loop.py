"""The loop: steps, with checkpoints, evaluations and all that a person sees of them.

Killed at any moment and started again, it ends with the bits of a run that was not interrupted: a
checkpoint holds weights, slots, averages and the step, from which all else follows. The next
example is number step * examples_per_step of the input; seeds follow from (experiment seed, step,
micro-batch, layer). A step whose loss or gradient is not finite, or whose examples all have weight
0, updates nothing but counts as a step, so that this stays true. While steps are not finite in a
row, no checkpoint is removed, and none is written but for an evaluation or the end: the weights of
the newest may be what is wrong.

A file that cannot be written, as on a full disk, costs a line and no more, except the last
checkpoint: without it the run has failed.

    LOGDIR/params.txt, lock      the Params; who trains there (both written by the trainer)
    LOGDIR/checkpoints/          see checkpoint/
    LOGDIR/tensorboard/          train, and eval_NAME for every eval input
    LOGDIR/timeline/             a picture and a trace of a measured step
    LOGDIR/pictures/             what the problem draws of the newest evaluation of each eval input
    LOGDIR/evaluations.jsonl, train.log, initialization.txt
"""
from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import time
from collections.abc import Iterator
from typing import IO

from lingpipe.checkpoint import Checkpointer
from lingpipe.checkpoint.room import check_room
from lingpipe.input import InputMeter
from lingpipe.pipeline.execution.bad_ids import BadIdError
from lingpipe.pipeline.execution.program import Program
from lingpipe.process.stop_signals import StopSignals
from lingpipe.training.best_checkpoint import BestCheckpoint
from lingpipe.training.evaluation import Evaluations, Metrics, Picture, metrics_text
from lingpipe.training.evaluation_log import EvaluationLog
from lingpipe.training.experiment import Experiment
from lingpipe.training.outcome import Outcome
from lingpipe.training.remedy import remedy
from lingpipe.training.reporting.plan_table import overview
from lingpipe.training.reporting.progress import Progress
from lingpipe.training.reporting.run_report import TENSORBOARD, RunReport
from lingpipe.training.reporting.timeline import WHY_THEY_DIFFER, TimelineReport, write_report
from lingpipe.training.saved_state import SavedState
from lingpipe.training.site import THIS_PROCESS, Site
from lingpipe.training.skipped_steps import (
    NonFiniteError,
    SkippedSteps,
    numbers_text,
    skipped_text,
)
from lingpipe.training.step_counts import StepCounts
from lingpipe.training.timed_steps import TimedSteps, soon_after
from lingpipe.training.training_batches import Batch, TrainingBatches

NUM_UNBOUNDED_STEPS = 4  # Untimed steps of a run without a time limit: the first traces the graph.


@dataclasses.dataclass(frozen=True)
class LoopOptions:
    """How one process trains, besides what the experiment's Params say.

    Attributes:
      has_evaluation: whether the eval inputs are used.
      has_timeline: whether a step is timed soon after the start, if timeline_step names no other.
      out: where lines and tables are shown; None: sys.stdout.
      stop: signals that somebody looks at already; None: they are looked at while the loop runs.
    """
    has_evaluation: bool = True
    has_timeline: bool = False
    out: IO[str] | None = None
    stop: StopSignals | None = None


class TrainLoop:
    """Trains an experiment in a logdir. Made once for each process that does.

    Attributes:
      program: the network on its devices.
    """

    def __init__(self, experiment: Experiment, logdir: str, options: LoopOptions = LoopOptions(),
                 site: Site = THIS_PROCESS):
        """
        Args:
          experiment: what is trained.
          logdir: where all files go.
          options: how this process trains.
          site: where it trains.

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
        self._log = EvaluationLog(logdir)
        self._checkpointer = Checkpointer(
            os.path.join(logdir, 'checkpoints'), self._params.keep)
        self._best = BestCheckpoint(self._checkpointer, experiment.params.task, best_input)
        self._log.repair()
        self._report = RunReport(logdir, ['train', *(f'eval_{name}' for name in inputs)])

        self.program: Program = experiment.make_program(site.devices)
        self._batches = TrainingBatches(experiment, self.program)
        self._evaluations = Evaluations(self.program, inputs, experiment.task, logdir)
        self._saved = SavedState(
            self._checkpointer, self.program, experiment,
            lambda text: self._report.say(f'step {self._counts.step}: {text}'))
        for source in inputs.values():
            experiment.task.check_facts(experiment.task.facts(experiment.train_input), source)

        # What changes from step to step.
        self._counts = StepCounts()
        self._num_untimed_steps = 0   # in this process
        self._timed = TimedSteps(self._params.timeline_step)
        self._timeline: TimelineReport | None = None
        self._has_warned_of_input = False
        # Of the last evaluation in this process, by eval input.
        self._evaluated: dict[str, tuple[int, Metrics]] = {}   # (step, metrics)
        self._pictures: dict[str, Picture] = {}

    def run(self) -> Outcome:
        """Trains until num_steps or a signal.

        Raises:
          NonFiniteError: learner.max_nonfinite_steps in a row, or all steps of this run.
          ValueError: the checkpoints do not fit, the input ended, or no step of this run had an
            example that counts.
          OSError: the last checkpoint cannot be written, or there is no room for one.
        """
        given = self._options.stop
        with contextlib.nullcontext(given) if given else StopSignals() as stop:
            restored = self._saved.restore(self._logdir)
            self._counts = restored.counts
            if self._options.has_timeline and self._params.timeline_step is None:
                self._timed = soon_after(self._counts.step, self._params.num_steps)
            with self._report.shown_by(self._make_progress()):
                batches = self._start(restored.text, stop)
                try:
                    self._train(batches, stop)
                except (ValueError, ArithmeticError, OSError):
                    self._saved.check(is_at_end=True)
                    raise
                return self._finish(stop)

    # The start.

    def _make_progress(self) -> Progress:
        return Progress(self._counts.step, self._params.num_steps,
                        self._experiment.examples_per_step,
                        os.path.join(self._logdir, 'train.log'), self._params.log_every_s,
                        self._options.out)

    def _start(self, where_from: str, stop: StopSignals) -> Iterator[Batch]:
        """Shows what begins, makes up for what a kill prevented, and returns the mini-batches."""
        self._say_start(where_from)
        batches = self._checked_batches()
        step = self._counts.step
        with self._report.optional(TENSORBOARD, step):
            self._report.summaries['train'].text('params', self._experiment.params.to_text())
        with self._report.optional('the mark of the best checkpoint', step):
            self._best.restore_mark(self._log, step)
        if step and self._is_evaluated_at(step):
            self._evaluate(stop)
        return batches

    def _say_start(self, where_from: str) -> None:
        step, say = self._counts.step, self._report.say
        say(overview(self.program.plan, self._experiment.params.train_input.batch_size))
        inputs = {'train_input': self._experiment.train_input, **self._evaluations.inputs}
        for name, source in inputs.items():
            if text := source.statistics_text():
                say(f'{name}: {text}')
        say(where_from)
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
        if is_training or self._is_evaluated_at(step):
            self._site.begin('the look at the inputs')
            for name in sorted(self._evaluations.inputs):
                self._evaluations.check(name)
            if self._evaluations.inputs:
                self._evaluations.check_metric(
                    self._best.input_name, self._experiment.params.task.best_metric)
        if not is_training:
            return iter(())
        check_room(self._checkpointer.directory, self.program.variables())
        return self._batches.after(step)

    # Steps.

    def _train(self, mini_batches: Iterator[Batch], stop: StopSignals) -> None:
        """Makes all steps that are left, until a signal comes."""
        p = self._params
        if self._counts.step >= p.num_steps:
            return
        if self._is_saved_on_the_way():
            self._saved.prepare()

        batches = InputMeter(mini_batches)
        while self._counts.step < p.num_steps and not stop.name:
            start_s = time.perf_counter()
            results = self._step(batches)
            self._saved.check()
            self._count(results)
            step = self._counts.step
            if p.check_replicas_every_steps and step % p.check_replicas_every_steps == 0:
                self.program.check_replicas()
            self._report.progress.update(step, time.perf_counter() - start_s, results)
            self._summarize(results, batches)

            is_evaluated = self._is_evaluated_at(step)
            is_due = step % p.checkpoint_every_steps == 0
            if is_evaluated or is_due and not self._counts.num_nonfinite_in_a_row:
                self._save()
            if is_evaluated:
                self._evaluate(stop)

    def _is_saved_on_the_way(self) -> bool:
        """Whether there will be a checkpoint before that of the last step."""
        intervals = (self._params.checkpoint_every_steps, self._params.eval_every_steps)
        return any(every and self._counts.step // every * every + every < self._params.num_steps
                   for every in intervals)

    def _step(self, batches: Iterator[Batch]) -> dict[str, float]:
        """Makes one step, and returns its numbers by name."""
        number = self._counts.step + 1
        is_timed = self._timed.has(number)
        is_bounded = self._num_untimed_steps >= NUM_UNBOUNDED_STEPS and not is_timed
        self._site.begin(f'step {number}', is_bounded)
        try:
            results = self._update(batches, is_timed)
        except BadIdError:
            self._batches.check_update(self._counts.step)   # It names the example of the data.
            raise
        self._num_untimed_steps += not is_timed
        return results

    def _update(self, batches: Iterator[Batch], is_timed: bool) -> dict[str, float]:
        """Makes one update from as many mini-batches as the learner accumulates."""
        step, num_batches = self._counts.step, self._experiment.params.task.learner.accumulate
        for index in range(num_batches):
            batch = self._next(batches)
            if step == index == 0:
                with self._report.optional(TENSORBOARD, step):
                    images = self._experiment.task.images(batch)
                    self._report.summaries['train'].images(0, images)
            if not self.program.has_traced(batch):
                self._site.begin(f'step {step + 1}')   # again, and without a limit
            if index < num_batches - 1:
                self.program.accumulate(batch, step, index)

        if is_timed:
            results, timeline = self.program.timed_step(batch, step, num_batches - 1)
            self._timed.add(timeline)
            if step + 1 == self._timed.last_step:
                with self._report.optional('the timeline', step):
                    self._draw_timeline(step + 1)
        else:
            results = self.program.train_step(batch, step, num_batches - 1)
        return {name: value.numpy().item() for name, value in results.items()}

    def _next(self, batches: Iterator[Batch]) -> Batch:
        try:
            return next(batches)
        except StopIteration:
            self._saved.save(self._counts, is_at_end=True)
            raise ValueError(
                f'train_input ends in step {self._counts.step + 1} of {self._params.num_steps}; '
                f'let it repeat (train_input.num_epochs=none), or lower '
                f'train.num_steps.') from None

    def _draw_timeline(self, step: int) -> None:
        """Writes and shows the timeline of the measured steps."""
        report = write_report(os.path.join(self._logdir, 'timeline'), step, self.program.plan,
                              self._timed.measured)
        self._timeline = report
        self._report.say(f'{report.text()}; {WHY_THEY_DIFFER}; {report.png}')
        self._report.summaries['train'].png(step, 'timeline', report.png)

    def _count(self, results: dict[str, float]) -> None:
        """Counts a step, and says if it was skipped.

        Raises:
          NonFiniteError: too many steps in a row, or all steps of the run, were not finite.
          ValueError: an example is at fault, or no step of the run updated anything.
        """
        before, self._counts = self._counts, self._counts.after(results)
        limits = SkippedSteps(self._params.num_steps,
                              self._experiment.params.task.learner.max_nonfinite_steps)
        if results['is_finite']:
            limits.check_weight(self._counts)
        else:
            self._batches.check_update(before.step)
            if why := limits.nonfinite_failure(self._counts):
                self._fail(results, why)
        if text := skipped_text(before, self._counts, results):
            self._report.say(text)

    def _fail(self, results: dict[str, float], why: str) -> None:
        """Raises NonFiniteError, which says what a person can do."""
        counts = self._counts
        with self._report.optional(TENSORBOARD, counts.step):
            self._report.summaries['train'].scalars(
                counts.step, {'nonfinite_steps': counts.num_nonfinite})
        self._saved.check(is_at_end=True)
        last_finite = counts.step - counts.num_nonfinite_in_a_row
        advice = remedy(self._experiment.params, self._checkpointer, self._logdir, last_finite)
        raise NonFiniteError(
            f'step {counts.step} has {numbers_text(results)}, and {why}. {advice}')

    def _summarize(self, results: dict[str, float], batches: InputMeter) -> None:
        """Writes the numbers of a step for TensorBoard, if it is time."""
        p, step, progress = self._params, self._counts.step, self._report.progress
        if step % p.summary_every_steps and step not in (1, p.num_steps):
            return
        values = {name: value for name, value in results.items() if name != 'is_finite'}
        values['nonfinite_steps'] = self._counts.num_nonfinite
        if progress.examples_per_s:
            values['examples_per_s'] = progress.examples_per_s
            values['input_wait_share'] = batches.share
        warning = batches.warning()   # of the steps since the last summary
        if warning and not self._has_warned_of_input:
            self._has_warned_of_input = True
            self._report.say(f'step {step}: {warning}')
        with self._report.optional(TENSORBOARD, step):
            self._report.summaries['train'].scalars(step, values)

    # Evaluation.

    def _is_evaluated_at(self, step: int) -> bool:
        """Whether there is an evaluation after `step` that has not been made."""
        every = self._params.eval_every_steps
        is_due = step >= self._params.num_steps or bool(every) and step % every == 0
        return is_due and not all(self._log.has(step, name) for name in self._evaluations.inputs)

    def _evaluate(self, stop: StopSignals) -> None:
        """Evaluates on every eval input, until a signal comes."""
        step = self._counts.step
        optional = functools.partial(self._report.optional, step=step)
        for name in sorted(self._evaluations.inputs):
            self._site.begin(f'the evaluation after step {step} on {name}')
            start_s = time.perf_counter()
            evaluation = self._evaluations.run(name, lambda: bool(stop.name))
            if evaluation is None:
                return
            metrics = evaluation.metrics
            self._evaluated[name] = step, metrics
            picture = self._evaluations.write(
                name, step, evaluation, self._report.summaries[f'eval_{name}'], optional)
            if picture:
                self._pictures[name] = picture

            self._saved.check(is_at_end=True)   # or it could not be marked
            note = ''
            with optional('the log of evaluations'):
                if name == self._best.input_name:
                    note = self._best.mark(step, metrics)
                self._log.add(step, name, metrics)
            took = f'{time.perf_counter() - start_s:.1f} s'
            self._report.say(f'evaluation after step {step} on {name}: {metrics_text(metrics)} '
                             f'({took}){note}')
            if picture:
                self._report.say(f'{picture.text}: {picture.path}')

    # Checkpoints and the end.

    def _save(self, is_at_end: bool = False) -> None:
        if not self._saved.is_saved(self._counts.step):
            self._site.begin(f'the checkpoint of step {self._counts.step}')
            self._saved.save(self._counts, is_at_end)

    def _finish(self, stop: StopSignals) -> Outcome:
        """Saves what is not saved, removes what is not needed, and says how the run ended."""
        counts = self._counts
        self._site.begin('the end of the training')
        self._saved.check(is_at_end=True)
        metrics_now = {name: metrics for name, (step, metrics) in self._evaluated.items()
                       if step == counts.step}
        if stop.name or counts.step >= self._params.num_steps:
            self._save(is_at_end=True)
            is_good = all(math.isfinite(metrics['loss']) for metrics in metrics_now.values())
            if is_good and not stop.name and not counts.num_nonfinite_in_a_row:
                self._checkpointer.prune()
        if stop.name:
            self._report.say(f'{stop.name}: stopped after step {counts.step}, whose checkpoint is '
                             f'saved; the same command goes on from there')
        self._report.close()
        return Outcome(
            counts.step, counts.num_nonfinite, stop.name,
            {**self._log.metrics_after(counts.step), **metrics_now}, self._checkpointer.best(),
            self._timeline, self._pictures)
