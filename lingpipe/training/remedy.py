"""Remedy: what a person can do when the steps of a run are no longer finite, as flags that can be copied.

A run keeps the learning rate that it began with, so another rate needs another logdir, which can
start from the weights of this one.
"""
from __future__ import annotations

import os
import shlex
from typing import Any

from lingpipe.checkpoint import Checkpointer, side_files
from lingpipe.hyperparams.value_text import write

_LARGEST_RATE = 0.01   # The largest that is advised: a tenth of 1e30 would help nobody.
_CLIP_NORM = 'task.learner.clip_norm=1.0'


def remedy(params: Any, checkpointer: Checkpointer, logdir: str, last_finite: int) -> str:
    """Returns sentences that say how to continue.

    Args:
      params: the Experiment.Params of the run.
      checkpointer: holds the checkpoints of the run.
      logdir: the run's directory.
      last_finite: the last step whose loss and gradient were finite, 0 if there is none. The weights that
        this step left may be at fault, but not those that it began with.
    """
    saved = checkpointer.steps()
    rate = _lower_rate(params.task.learner.learning_rate)
    overrides = [rate or _CLIP_NORM]
    clipping = f' (or {_set(_CLIP_NORM)}, to clip gradients)' if rate and params.task.learner.clip_norm is None else ''
    if not saved:
        return (f'There is no checkpoint yet. If the input is at fault, mend it; if not, give the same command with '
                f'{" ".join(map(_set, overrides))}{clipping} at its end.')

    good = max((step for step in saved if step < last_finite), default=None)
    start = 'No checkpoint holds weights with which a step was finite, so that run begins anew'
    if good is not None:
        start = f'That run begins with the weights of step {good}, the newest saved ones with which a step was finite'
        overrides = [f'initialize_from.directory={checkpointer.path(good)}', *_rules(params.initialize_from), *overrides]
    other_logdir = side_files.free_name(os.path.normpath(logdir))   # beside this one, which exists
    flags = ' '.join([f'--logdir={shlex.quote(other_logdir)}', *map(_set, overrides)])
    return (f'If the input is at fault, mend it: the same command then goes on from the checkpoint of step {saved[-1]}. If not, give '
            f'the same command with {flags}{clipping} at its end. {start}.')


def _set(override: str) -> str:
    return f'--set {shlex.quote(override)}'


def _lower_rate(schedule: Any) -> str:
    """An override that lowers the learning rate; '' if the schedule has no field `rate` or `rates`."""
    for name in ('rate', 'rates'):
        value = getattr(schedule, name, None)
        if value is not None:
            lower = [_lower(one) for one in value] if name == 'rates' else _lower(value)
            return f'task.learner.learning_rate.{name}={write(lower)}'
    return ''


def _lower(rate: float) -> float:
    return float(f'{min(rate / 10, _LARGEST_RATE):.3g}')


def _rules(initialize_from: Any) -> list[str]:
    """The override that resets initialize_from.rules, if this run has rules, which were for another source."""
    default = type(initialize_from)().rules
    return [] if initialize_from.rules == default else [f'initialize_from.rules={write(default)}']
