"""Kept order: a run that is resumed goes on in the order of examples that it began with.

Before shuffle_rounds was a field, all orders were made with 4 rounds, so that is what a text
without it means. The field's default is for new runs.
"""
from __future__ import annotations

from absl import logging

from lingpipe.training.experiment import Experiment
from lingpipe.training.recorded_params import recorded_text, value_in

_PATH = 'train_input.shuffle_rounds'
_ROUNDS_BEFORE = '4'


def with_order_of_run(params: Experiment.Params, logdir: str) -> Experiment.Params:
    """The Params with the order of examples of the run that a logdir holds, if it holds one.

    Args:
      params: the experiment's, frozen.
      logdir: that of the run.
    """
    text = recorded_text(logdir)
    if not text:
        return params
    kept = params.copy().override(_PATH, value_in(text, _PATH) or _ROUNDS_BEFORE)
    if kept == params:
        return params
    if kept.train_input.shuffle:
        logging.info('the run in %s goes on in the order of examples that it began with, that of '
                     '%s=%d', logdir, _PATH, kept.train_input.shuffle_rounds)
    return kept.freeze()
