"""Experiment Params: those that a command runs with, as its options say."""
from __future__ import annotations

from absl import logging

from lingpipe.commands.chosen_plan import with_plan
from lingpipe.commands.plan_freedom import freedom, remedy, values_in
from lingpipe.commands.run_options import RunOptions
from lingpipe.hyperparams import ParamsError
from lingpipe.training import registry
from lingpipe.training.experiment import Experiment


def read_params(options: RunOptions) -> Experiment.Params:
    """The Params of the experiment --model with all overrides; see `with_options`."""
    return with_options(registry.get(options.model), options)


def with_options(params: Experiment.Params, options: RunOptions) -> Experiment.Params:
    """The Params with all overrides, checked and frozen, so that what is saved is what runs.

    Raises:
      ParamsError: an override that does not fit, or values that do not go together.
    """
    try:
        params = params.copy().override_all(values_in(options.overrides))
    except ParamsError as error:
        if not (hint := remedy(error.path)):
            raise
        text = str(error)
        joint = ' ' if text.endswith('?') else '; '
        raise ParamsError(f'{text}{joint}{hint}', error.path) from error
    if options.num_steps is not None:
        params.train.num_steps = options.num_steps
    return params.freeze()


def chosen(params: Experiment.Params, options: RunOptions) -> Experiment.Params:
    """The Params with the plan that a planner chooses, if one is asked for.

    A flag that only a planner reads costs a warning in a run without one.
    """
    if freedom(options).free:
        return with_plan(params, options)
    unread = {f'device_type={options.device_type}': options.device_type,
              'change_statistics': options.may_change_statistics}
    for name, is_given in unread.items():
        if is_given and options.mode in ('train', 'train_and_eval'):
            logging.warning('%s is not used, since no plan is looked for; add plan=auto, or leave '
                            'it out.', name)
    return params
