"""Hook: something that is called while a run trains, and what it may look at."""
from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from absl import logging

from lingpipe.hyperparams import Configurable, Params, field

How = Literal['done', 'stopped', 'failed']


@dataclasses.dataclass(frozen=True)
class HookedRun:
    """What a hook may look at and do.

    Attributes:
      logdir: where files go.
      params: the experiment's.
      variables: weights, optimizer slots and averages, by their keys in checkpoints; to be read.
      gradients: in on_step, those of the step by the paths of the weights, if `wants_gradients`;
        otherwise empty. See Program.train_step.
      evaluations: returns all evaluations so far, those before the run was resumed included: dicts
        with 'step', 'input' and metrics by name.
      say: shows a line.
      stop: ends the run after this step, as if it were the last; takes the reason, which is shown.
    """
    logdir: str
    params: Params
    variables: Mapping[str, tf.Variable]
    evaluations: Callable[[], Sequence[Mapping[str, Any]]]
    say: Callable[[str], None]
    stop: Callable[[str], None]
    gradients: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)


class Hook(Configurable):
    """Is called while a run trains. A subclass overrides what it needs; the rest does nothing.

    Whatever it raises is shown in one line, and the run goes on without the hook, or ends with a
    checkpoint, as `on_error` says.
    """

    class Params(Configurable.Params):
        """When it is called."""
        written_as = 'hooks.CSV.Params()'
        every_steps: int = field(1, 'Steps between two calls of on_step.', least=1)
        on_error: Literal['stop', 'go_on'] = field(
            'go_on', 'What the run does if the hook raises: it stops with a checkpoint, or goes on '
                     'without the hook.')

    params: Params
    needs_evaluations = False   # Whether it is left out of a run that evaluates nothing.

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        known = [name for name in vars(Hook) if name.startswith('on_')]
        for name in vars(cls):
            near = difflib.get_close_matches(name, known, 1, cutoff=0.8)
            if near and name not in known and callable(getattr(cls, name)):
                logging.warning('a run does not call %s.%s; did you mean %s?', cls.__qualname__,
                                name, near[0])

    @property
    def wants_gradients(self) -> bool:
        """Whether on_step reads `run.gradients`, which costs these steps memory and time."""
        return False

    def on_start(self, run: HookedRun, step: int) -> None:
        """Called before the first step of a process, after `step` steps of processes before it."""

    def on_step(self, run: HookedRun, step: int, results: Mapping[str, float]) -> None:
        """Called after every `every_steps`-th step.

        Args:
          run: what there is to look at.
          step: the number of steps made.
          results: 'loss', other losses and metrics of the network, 'weight', 'gradient_norm',
            'learning_rate' and 'is_finite'.
        """

    def on_evaluation(self, run: HookedRun, step: int, name: str,
                      metrics: Mapping[str, float]) -> None:
        """Called after an evaluation on the eval input `name`."""

    def on_checkpoint(self, run: HookedRun, step: int, path: str) -> None:
        """Called when the checkpoint of a step is whole on the disk, perhaps some steps later."""

    def on_end(self, run: HookedRun, how: How) -> None:
        """Called once, when the process makes no more steps.

        Args:
          run: what there is to look at.
          how: 'done' after the last step, or the one after which a hook has stopped the run;
            'stopped' by a signal, so that the run may go on; or 'failed'.
        """
