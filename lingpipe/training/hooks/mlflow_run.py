"""MLflow: sends the numbers of a run to a tracking server or a folder. It needs mlflow."""
from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from lingpipe.hyperparams import field
from lingpipe.training.hooks.hook import Hook, HookedRun, How
from lingpipe.training.hooks.params_values import params_values
from lingpipe.training.hooks.services import imported, kept_id

_STATUS = {'done': 'FINISHED', 'stopped': 'KILLED', 'failed': 'FAILED'}   # MLflow's words
_MAX_VALUE = 500      # Characters of a parameter that every version of the server takes.
_MAX_NAME = 250        # Characters of a name.
_MAX_IN_A_CALL = 100   # Parameters.


class MLflow(Hook):
    """Sends the Params, the numbers of steps and all evaluations to MLflow.

    LOGDIR/mlflow_id.txt keeps the run's id, so that a run that is resumed goes on there too.
    """

    class Params(Hook.Params):
        """Where MLflow keeps the run, and how it is called there."""
        every_steps: int = field(10)
        tracking_uri: str = field('', 'A server or folder; empty: as mlflow finds it.')
        experiment: str = field('lingpipe', 'The experiment there.')
        name: str = field('', "The run's name there; empty: the name of the logdir.")

    params: Params

    def __init__(self, params: Params):
        super().__init__(params)
        self._mlflow: Any = imported('mlflow', type(self).__name__)
        self._has_begun = False

    def on_start(self, run: HookedRun, step: int) -> None:
        """Begins or resumes the run there."""
        p = self.params
        if p.tracking_uri:
            self._mlflow.set_tracking_uri(p.tracking_uri)
        self._mlflow.set_experiment(p.experiment)
        name = p.name or os.path.basename(os.path.abspath(run.logdir))

        def begin() -> str:
            run_id: str = self._mlflow.start_run(run_name=name).info.run_id
            self._has_begun = True
            return run_id

        run_id = kept_id(run.logdir, 'mlflow_id.txt', begin)
        if not self._has_begun:
            self._mlflow.start_run(run_id=run_id)
            self._has_begun = True
            return   # MLflow takes no parameter twice.
        values = [(_name(path), str(value)[:_MAX_VALUE])
                  for path, value in params_values(run.params).items()]
        for first in range(0, len(values), _MAX_IN_A_CALL):
            self._mlflow.log_params(dict(values[first:first + _MAX_IN_A_CALL]))

    def on_step(self, run: HookedRun, step: int, results: Mapping[str, float]) -> None:
        """Sends the numbers of a step."""
        self._mlflow.log_metrics(
            {_name(f'train/{name}'): float(value) for name, value in results.items()}, step=step)

    def on_evaluation(self, run: HookedRun, step: int, name: str,
                      metrics: Mapping[str, float]) -> None:
        """Sends the metrics."""
        self._mlflow.log_metrics(
            {_name(f'{name}/{metric}'): value for metric, value in metrics.items()}, step=step)

    def on_end(self, run: HookedRun, how: How) -> None:
        """Ends the run there."""
        if self._has_begun:
            self._mlflow.end_run(status=_STATUS[how])


def _name(text: str) -> str:
    """A name that MLflow takes: layers.0 for layers[0], and no other special characters."""
    return re.sub(r'[^/\w.\- :]', '_', re.sub(r'\[(\d+)\]', r'.\1', text))[-_MAX_NAME:]
