"""Early stopping: ends a run whose metric has got no better for several evaluations."""
from __future__ import annotations

import math
from collections.abc import Mapping

from lingpipe.hyperparams import field
from lingpipe.training.hooks.hook import Hook, HookedRun
from lingpipe.training.problem import is_accuracy
from lingpipe.wording.counts import counted


class EarlyStopping(Hook):
    """Stops after `patience` evaluations without a better metric.

    It counts the evaluations of LOGDIR/evaluations.jsonl, so that a run that is resumed stops where
    one that was not interrupted does.
    """

    class Params(Hook.Params):
        """What is watched. train.eval_every_steps, 0 by default, says how often it is measured."""
        metric: str = field('loss', 'The metric of the evaluation.')
        is_largest_best: bool = field(False, 'Whether more of the metric is better.')
        input: str = field('', 'The eval input; empty: the first by name.')
        patience: int = field(3, 'Evaluations without a better metric.', least=1)
        min_change: float = field(0.0, 'How much better counts as better.', least=0)

        def check(self) -> None:
            """Raises ValueError if a run would stop because its accuracy rises."""
            if is_accuracy(self.metric) and not self.is_largest_best:
                raise ValueError(f'metric={self.metric!r} with is_largest_best=False would stop a '
                                 'run whose accuracy rises; set is_largest_best=True')

    params: Params
    needs_evaluations = True

    def on_start(self, run: HookedRun, step: int) -> None:
        """Stops a run that was stopped before."""
        self._decide(run, step)

    def on_evaluation(self, run: HookedRun, step: int, name: str,
                      metrics: Mapping[str, float]) -> None:
        """Stops the run if it is time.

        Raises:
          ValueError: the evaluation has no such metric.
        """
        if name == self._input(run):
            if self.params.metric not in metrics:
                raise ValueError(f'metric={self.params.metric!r} is not among the metrics of '
                                 f'{name}: {", ".join(metrics)}; name one of them')
            self._decide(run, step)

    def _input(self, run: HookedRun) -> str:
        return self.params.input or min(run.params['eval_inputs'], default='')

    def _decide(self, run: HookedRun, last_step: int) -> None:
        p = self.params
        values = {line['step']: line[p.metric] for line in run.evaluations()
                  if line['input'] == self._input(run) and p.metric in line
                  and line['step'] <= last_step}   # a step that was evaluated twice counts once
        best, best_step, num_since = math.inf, 0, 0
        for step, value in sorted(values.items()):
            loss = -value if p.is_largest_best else value
            if loss < best - p.min_change:
                best, best_step, num_since = loss, step, 0
            else:
                num_since += 1
        if num_since >= p.patience:
            direction = 'largest' if p.is_largest_best else 'smallest'
            run.stop(f'{p.metric} has got no better for {counted(num_since, "evaluation")}; it was '
                     f'best at step {best_step}, where it was {direction}')
