"""Best checkpoint: the one with the best metric so far, which is kept."""
from __future__ import annotations

from collections.abc import Mapping

from absl import logging

from lingpipe.checkpoint import Checkpointer
from lingpipe.training.evaluation_log import EvaluationLog
from lingpipe.training.problem import Problem


class BestCheckpoint:
    """Marks the best of the checkpoints of a run by its evaluations.

    Attributes:
      input_name: the eval input whose metric decides; '' if there is none.
    """

    def __init__(self, checkpointer: Checkpointer, problem: Problem.Params, input_name: str,
                 data: str):
        """
        Args:
          checkpointer: has the checkpoints.
          problem: names the metric that decides, and whether a larger value is better.
          input_name: see the class.
          data: EvaluationLog.data_of that input. A best value on other data does not count.
        """
        self.input_name = input_name
        self._checkpointer, self._problem = checkpointer, problem
        side = 'largest' if problem.best_is_largest else 'smallest'
        self._measure = f'{side} {problem.best_metric} of {input_name} {data}'.strip()

    def mark(self, step: int, metrics: Mapping[str, float]) -> str:
        """Marks the checkpoint of a step if it is the best so far; returns a note on that, or ''.

        Raises:
          ValueError: the metric is not among those of the evaluation.
          OSError: the mark cannot be written.
        """
        metric = self._problem.best_metric
        if metric not in metrics:
            raise ValueError(f'task.best_metric={metric!r} is not among the metrics of '
                             f'{self.input_name}: {", ".join(metrics)}; name one of them.')
        is_best = self._checkpointer.mark_best(
            step, metrics[metric], self._problem.best_is_largest, self._measure)
        return f'; best {metric} so far' if is_best else ''

    def restore_mark(self, log: EvaluationLog, last_step: int) -> None:
        """Marks the best checkpoint by the logged evaluations, unless it is marked already.

        The mark is missing if best.json was lost, or if the checkpoint was written later than its
        evaluation. A mark by another metric, or on other data, does not count.

        Args:
          log: has the evaluations.
          last_step: the step of the newest checkpoint that is not damaged.

        Raises:
          OSError: the mark cannot be written.
        """
        before = self._checkpointer.best()
        if before and not self._checkpointer.has_best(self._measure):
            logging.warning('another metric or other data now says which checkpoint is the best '
                            '(%s), so the best so far, step %d, no longer counts',
                            self._measure, before[0])
        metric = self._problem.best_metric
        steps = [step for step in self._checkpointer.steps() if step <= last_step]
        for line in log.read():
            if line['input'] == self.input_name and line['step'] in steps and metric in line:
                self._checkpointer.mark_best(line['step'], line[metric],
                                             self._problem.best_is_largest, self._measure)
