"""Weights & Biases: sends the numbers of a run there. It needs the package wandb."""
from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from typing import Any

from lingpipe.hyperparams import field
from lingpipe.training.hooks.hook import Hook, HookedRun, How
from lingpipe.training.hooks.params_values import params_values
from lingpipe.training.hooks.services import imported, kept_id


class WeightsAndBiases(Hook):
    """Sends the Params, the numbers of steps and all evaluations to Weights & Biases.

    LOGDIR/wandb_id.txt keeps the run's id, so that a run that is resumed goes on there too.
    """

    class Params(Hook.Params):
        """Where Weights & Biases keeps the run, and how it is called there."""
        every_steps: int = field(10)
        project: str = field('lingpipe', 'The project.')
        name: str = field('', "The run's name there; empty: the name of the logdir.")
        mode: str = field('', "'offline' or 'disabled', as wandb.init has it; empty: its default.")

    params: Params

    def __init__(self, params: Params):
        super().__init__(params)
        self._wandb: Any = imported('wandb', type(self).__name__)
        self._theirs: Any = None

    def on_start(self, run: HookedRun, step: int) -> None:
        """Begins or resumes the run there."""
        p = self.params
        mode = {'mode': p.mode} if p.mode else {}
        self._theirs = self._wandb.init(
            project=p.project, name=p.name or os.path.basename(os.path.abspath(run.logdir)),
            id=kept_id(run.logdir, 'wandb_id.txt', lambda: uuid.uuid4().hex), resume='allow',
            dir=run.logdir, config=params_values(run.params), **mode)

    def on_step(self, run: HookedRun, step: int, results: Mapping[str, float]) -> None:
        """Sends the numbers of a step."""
        self._theirs.log({f'train/{name}': value for name, value in results.items()}, step=step)

    def on_evaluation(self, run: HookedRun, step: int, name: str,
                      metrics: Mapping[str, float]) -> None:
        """Sends the metrics."""
        self._theirs.log({f'{name}/{metric}': v for metric, v in metrics.items()}, step=step)

    def on_end(self, run: HookedRun, how: How) -> None:
        """Ends the run there."""
        if self._theirs is not None:
            self._theirs.finish(exit_code=1 if how == 'failed' else 0)
