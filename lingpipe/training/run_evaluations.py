"""Run evaluations: those that a run makes on its way and at its end, logged and marked."""
from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from typing import Any

from lingpipe.input import Input
from lingpipe.process.stop_signals import StopSignals
from lingpipe.training.best_checkpoint import BestCheckpoint
from lingpipe.training.evaluation import Evaluations, Metrics, Picture, metrics_text
from lingpipe.training.evaluation_log import EvaluationLog
from lingpipe.training.hooks import EarlyStopping
from lingpipe.training.run import Run
from lingpipe.training.saved_state import SavedState


class RunEvaluations:
    """Evaluates a run, and keeps its best checkpoint.

    Attributes:
      inputs: the eval inputs, by name.
      pictures: of the last evaluation in this process, by eval input.
    """

    def __init__(self, run: Run, saved: SavedState, evaluations: Evaluations,
                 inputs: Mapping[str, Input], best_input: str):
        """
        Args:
          run: what is evaluated.
          saved: the checkpoints, of which one is marked as the best.
          evaluations: of the run's program.
          inputs: the eval inputs that are used, by name.
          best_input: the name of the one whose metric says which is the best.
        """
        self.inputs = inputs
        self.pictures: dict[str, Picture] = {}
        self._run, self._saved = run, saved
        problem = run.experiment.task
        self._evaluations = evaluations
        # A run that evaluates nothing still knows on which data the best was found.
        self._log = EvaluationLog(run.logdir, {
            name: source.params for name, source in run.experiment.eval_inputs.items()})
        self._best = BestCheckpoint(
            run.checkpointer, problem.params, best_input, self._log.data_of(best_input))
        self._log.repair()
        self._last_metrics: dict[str, tuple[int, Metrics]] = {}   # (step, metrics), by eval input
        for source in inputs.values():
            problem.check_facts(problem.facts(run.experiment.train_input), source)

    def check(self) -> None:
        """Looks at one mini-batch of every eval input.

        Raises:
          ValueError: the network cannot be evaluated on one, or will not give the best metric.
        """
        for name in sorted(self.inputs):
            self._evaluations.check(name)
        if self.inputs:
            metric = self._run.experiment.params.task.best_metric
            self._evaluations.check_metric(self._best.input_name, metric)
            for hook in self._run.experiment.params.hooks:
                if isinstance(hook, EarlyStopping.Params):
                    self._check_stopping(hook)

    def _check_stopping(self, hook: EarlyStopping.Params) -> None:
        """Raises ValueError if what a hook watches will not be there."""
        watched = hook.input or min(self.inputs)
        if watched not in self.inputs:
            raise ValueError(f'input={watched!r} of EarlyStopping is no eval input; there are '
                             f'{", ".join(sorted(self.inputs))}.')
        self._evaluations.check_metric(watched, hook.metric, 'metric of EarlyStopping')

    def remarks(self) -> list[str]:
        """Sentences about hooks that will do less than their name says; shown with the plan."""
        p = self._run.experiment.params
        waiting = [hook for hook in p.hooks if isinstance(hook, EarlyStopping.Params)]
        if not self.inputs or not waiting or p.train.eval_every_steps:
            return []
        return ['EarlyStopping stops nothing, since this run is evaluated only at its end; set '
                'train.eval_every_steps.']

    def go_on_from(self, step: int) -> None:
        """Forgets the evaluations of later steps, and marks the best checkpoint up to this one."""
        with self._run.report.optional('the log of evaluations', step):
            self._log.forget_after(step)
        self.restore_mark(step)

    def restore_mark(self, step: int) -> None:
        """Marks the best of the checkpoints up to `step` again, if the mark was lost."""
        with self._run.report.optional('the mark of the best checkpoint', step):
            self._best.restore_mark(self._log, step)

    def logged(self) -> list[dict[str, Any]]:
        """The lines of the evaluation log, oldest first, with 'step', 'input' and metrics."""
        return self._log.read()

    def metrics_after(self, step: int) -> dict[str, Metrics]:
        """The metrics after `step` by eval input, those of earlier processes included."""
        return {**self._log.metrics_after(step), **self.metrics_of_this_process(step)}

    def metrics_of_this_process(self, step: int) -> dict[str, Metrics]:
        """The metrics after `step` by eval input, if this process has evaluated them last."""
        return {name: metrics for name, (last_step, metrics) in self._last_metrics.items()
                if last_step == step}

    def is_due(self, step: int) -> bool:
        """Whether there is an evaluation after `step` that has not been made."""
        p = self._run.experiment.params.train
        is_due = step >= p.num_steps or (
            p.eval_every_steps > 0 and step % p.eval_every_steps == 0)
        return is_due and self.is_missing(step)

    def is_missing(self, step: int) -> bool:
        """Whether an evaluation after `step` has not been made."""
        return not all(self._log.has(step, name) for name in self.inputs)

    def make(self, step: int, stop: StopSignals) -> None:
        """Evaluates after `step` on every eval input, until a signal comes."""
        optional = functools.partial(self._run.report.optional, step=step)
        for name in sorted(self.inputs):
            self._run.site.begin(f'the evaluation after step {step} on {name}')
            start_s = time.perf_counter()
            evaluation = self._evaluations.run(name, lambda: bool(stop.name))
            if evaluation is None:
                return
            metrics = evaluation.metrics
            self._last_metrics[name] = step, metrics
            picture = self._evaluations.write(
                name, step, evaluation, self._run.report.summaries[f'eval_{name}'], optional)
            if picture:
                self.pictures[name] = picture

            self._saved.check(is_at_end=True)   # or it could not be marked
            note = ''
            with optional('the log of evaluations'):
                if name == self._best.input_name:
                    note = self._best.mark(step, metrics)
                self._log.add(step, name, metrics)
            took = f'{time.perf_counter() - start_s:.1f} s'
            self._run.report.say(f'evaluation after step {step} on {name}: '
                                 f'{metrics_text(metrics)} ({took}){note}')
            if picture:
                self._run.report.say(f'{picture.text}: {picture.path}')
            self._run.hooks.evaluation(step, name, metrics)
