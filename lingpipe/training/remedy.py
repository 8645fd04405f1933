"""Remedy: what a person can do when steps are no longer finite, as flags that can be copied.

A run keeps the learning rate that it began with, so another rate needs another logdir, which can
start from the weights of this one.
"""
from __future__ import annotations

import os
import shlex

from lingpipe.checkpoint import Checkpointer, side_files
from lingpipe.hyperparams import Params
from lingpipe.hyperparams.text import write
from lingpipe.training.experiment import Experiment
from lingpipe.training.initialize_from import InitializeFrom

_LARGEST_RATE = 0.01   # The largest that is advised: a tenth of 1e30 would help nobody.
_CLIP_NORM = 'task.learner.clip_norm=1.0'


def remedy(params: Experiment.Params, checkpointer: Checkpointer, logdir: str,
           last_finite: int) -> str:
    """Returns sentences that say how to continue.

    Args:
      params: those of the run.
      checkpointer: holds the checkpoints of the run.
      logdir: the run's directory.
      last_finite: the last step whose loss and gradient were finite, 0 if there is none. The
        weights that this step left may be at fault, but not those that it began with.
    """
    saved_steps = checkpointer.steps()
    learner = params.task.learner
    lower_rate = _lower_rate(learner.learning_rate)
    overrides = [lower_rate or _CLIP_NORM]
    may_clip = bool(lower_rate) and learner.clip_norm is None
    clipping = f' (or {_set(_CLIP_NORM)}, to clip gradients)' if may_clip else ''
    if not saved_steps:
        flags = ' '.join(map(_set, overrides))
        return (f'There is no checkpoint yet. If the input is at fault, mend it; if not, give the '
                f'same command with {flags}{clipping} at its end.')

    good_step = max((step for step in saved_steps if step < last_finite), default=None)
    start = ('No checkpoint holds weights with which a step was finite, so that run starts from '
             'scratch')
    if good_step is not None:
        start = (f'That run begins with the weights of step {good_step}, the newest saved ones '
                 f'with which a step was finite')
        overrides = [f'initialize_from.directory={checkpointer.path(good_step)}',
                     *_defaults(params.initialize_from), *overrides]
    other_logdir = side_files.free_name(os.path.normpath(logdir))   # beside this one, which exists
    flags = ' '.join([f'--logdir={shlex.quote(other_logdir)}', *map(_set, overrides)])
    return (f'If the input is at fault, mend it: the same command then goes on from the checkpoint '
            f'of step {saved_steps[-1]}. If not, give the same command with {flags}{clipping} at '
            f'its end. {start}.')


def _set(override: str) -> str:
    return f'--set {shlex.quote(override)}'


def _lower_rate(learning_rate: Params) -> str:
    """An override that lowers a learning rate; '' if it has no field `rate` or `rates`."""
    for name in ('rate', 'rates'):
        value = getattr(learning_rate, name, None)
        if value is not None:
            lower = [_lower(one) for one in value] if name == 'rates' else _lower(value)
            return f'task.learner.learning_rate.{name}={write(lower)}'
    return ''


def _lower(rate: float) -> float:
    return float(f'{min(rate / 10, _LARGEST_RATE):.3g}')


def _defaults(initialize_from: InitializeFrom) -> list[str]:
    """The overrides that reset what this run has of its own, since it was for another source."""
    defaults = {'rules': InitializeFrom().rules, 'adapters': InitializeFrom().adapters}
    return [f'initialize_from.{name}={write(default)}' for name, default in defaults.items()
            if initialize_from[name] != default]
