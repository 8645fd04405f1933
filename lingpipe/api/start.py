"""Start: makes a Run of an experiment and of options as Python values."""
from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lingpipe.api.run import Run
from lingpipe.checkpoint.chosen_step import check_name
from lingpipe.commands.experiment_params import chosen, with_options
from lingpipe.commands.run_options import RunOptions, may_be_logdir
from lingpipe.hyperparams import fields_of
from lingpipe.hyperparams.text import write
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.training import registry
from lingpipe.training.experiment import Experiment
from lingpipe.wording.keras_words import place_of, remedy_for
from lingpipe.wording.values import nearest, show

_PLANS = ('as_set', 'auto')


def start(experiment: Experiment.Params | type | str, *, logdir: str | os.PathLike[str],
          devices: str | Sequence[str] = '', set: Mapping[str, Any] | None = None,
          plan: str = 'as_set', device_type: str = '', change_statistics: bool = False,
          allow_change: Sequence[str] = (), checkpoint: str | int = 'newest', address: str = '',
          only_reads: bool = False, **pipeline: Any) -> Run:
    """Starts a run, or resumes the one that the logdir holds. Nothing is trained yet.

    The arguments are the trainer's flags of the same names. Call it before anything else that uses
    TensorFlow, which cannot make devices for the cells later: they would share those that there
    are, and a warning would say so.

    Args:
      experiment: a registered class, its name, or Experiment.Params.
      logdir: the directory of checkpoints, summaries and pictures.
      devices: where cells go, as 'cpu:4', 'gpu:0-3' or 'host1:2222,host2:2222', or a list of such.
      set: values of the Params by path, as {'train.num_steps': 100}.
      plan: 'auto': the planner chooses what is not set, if the run is new.
      device_type: for plan='auto': what the devices are, as 'h100'.
      change_statistics: for plan='auto': whether it may change which examples BatchNorm sees
        together.
      allow_change: paths of Params that may differ from those with which the run began, as
        ['task.learner.*']. LOGDIR/params_history.txt keeps what has changed.
      checkpoint: for a run that only reads: 'newest', 'best' or a step.
      address: 'host:port' where workers reach this process.
      only_reads: whether to leave the logdir to another process that trains there.
      **pipeline: fields of PipelineParams, as num_cells=4; 'auto' leaves one to the planner.

    Raises:
      TypeError: `experiment` is not an experiment, or an option does not exist.
      ValueError: an option is wrong, or a run of another experiment is in the logdir.
      OSError: another run is in the logdir, a worker does not answer, or a file cannot be written.
    """
    _check(plan, pipeline, set)
    values = {**dict(set or {}), **{f'pipeline.{name}': v for name, v in pipeline.items()}}
    texts = tuple(f'{path}={_text(v)}' for path, v in values.items() if _has_text(v))
    check_name(str(checkpoint), 'checkpoint')
    objects = {path: v for path, v in values.items() if not _has_text(v)}
    options = RunOptions(
        mode='eval' if only_reads else 'train_and_eval',
        model='' if objects else _name(experiment), overrides=texts, logdir=_absolute(logdir),
        devices=','.join(_texts('devices', devices)),
        device_type=device_type, has_auto_plan=plan == 'auto',
        may_change_statistics=change_statistics, address=address, checkpoint=str(checkpoint),
        allow_change=_texts('allow_change', allow_change))
    options = dataclasses.replace(options, command_line=_command_line(options))

    params = _params(experiment).set(**objects)
    run = Run(chosen(with_options(params, options), options), options, is_writer=not only_reads)
    _find_devices(run)
    return run


def _texts(name: str, given: str | Iterable[str]) -> tuple[str, ...]:
    """One text or several as a tuple. Raises TypeError for anything else."""
    texts = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f'{name} is {show(given)}, but must be a text or a list of texts.')
    return texts


def _find_devices(run: Run) -> None:
    """Tells of devices that are wrong or missing at once, and closes the run if there are any."""
    try:
        run.at_site(lambda site: None)
    except BaseException:
        run.close()
        raise


def _absolute(logdir: str | os.PathLike[str]) -> str:
    """Returns the absolute path, since the process may change its working directory; '' for ''.

    Raises:
      TypeError: it is no path.
      ValueError: TensorFlow could not open it.
    """
    if not isinstance(logdir, str | os.PathLike):
        raise TypeError(f'logdir is {show(logdir)}, but must be a path; name a directory for '
                        'checkpoints and summaries.')
    path = os.path.expanduser(os.fspath(logdir))
    if not may_be_logdir(path):
        raise ValueError(f'logdir={path!r} is not UTF-8, and TensorFlow opens no other path; '
                         'choose another directory.')
    return os.path.abspath(path) if path else ''


def _check(plan: str, pipeline: Mapping[str, Any], values: object) -> None:
    """Raises ValueError for a wrong plan, and TypeError for a wrong option or an unknown one."""
    if values is not None and not isinstance(values, Mapping):
        raise TypeError(f'set is {show(values)}, but must be a dict of values by path; write '
                        "set={'train.num_steps': 100}.")
    if plan not in _PLANS:
        raise ValueError(f'plan={plan!r} is none of {", ".join(_PLANS)}; use one of these.')
    known = fields_of(PipelineParams)
    for name in pipeline:
        if name not in known:
            options = [*known, *_OPTIONS]
            remedy = place_of(name) or nearest(name, options)
            end = '' if remedy[-1] in '.?' else '.'
            raise TypeError(f'start() has no option {name!r}: {remedy}{end} Other values of the '
                            "experiment go into set={'path': value}.")


_OPTIONS = ('logdir', 'devices', 'set', 'plan', 'device_type', 'change_statistics',
            'allow_change', 'checkpoint', 'address', 'only_reads')


def _params(experiment: Experiment.Params | type | str) -> Experiment.Params:
    """The Params of an experiment, not frozen."""
    if isinstance(experiment, Experiment.Params):
        return experiment.copy()
    if isinstance(experiment, str):
        return registry.get(experiment)
    if isinstance(experiment, type):
        return registry.params_of(experiment)
    remedy = f': {remedy_for(experiment)}' if remedy_for(experiment) else ''
    raise TypeError(f'{show(experiment)} is no experiment; give a registered class, its name, or '
                    f'Experiment.Params{remedy}.')


def _name(experiment: Experiment.Params | type | str) -> str:
    """The name by which another process finds the experiment; '' if it cannot."""
    if isinstance(experiment, str):
        return experiment
    if not isinstance(experiment, type) or experiment.__module__ == '__main__':
        return ''
    return f'{experiment.__module__}.{experiment.__qualname__}'


def _has_text(value: object) -> bool:
    """Whether a value can be written as a flag."""
    if isinstance(value, (tuple, list)):
        return all(map(_has_text, value))
    if isinstance(value, dict):
        return all(map(_has_text, value.values()))
    return value is None or isinstance(value, (str, bool, int, float, np.generic))


def _text(value: Any) -> str:
    """The text of a value as a flag has it; a text may leave out its quotes."""
    if isinstance(value, str):
        return value
    return write(value.item() if isinstance(value, np.generic) else value)


def _command_line(options: RunOptions) -> tuple[str, ...]:
    """The trainer's flags for the same plan, for the process that looks for it."""
    flags = [f'--model={options.model}', *(f'--set={text}' for text in options.overrides)]
    flags += [f'--{name}={value}' for name, value in (
        ('devices', options.devices), ('device_type', options.device_type)) if value]
    flags += ['--plan=auto'] if options.has_auto_plan else []
    return (*flags, *(['--change_statistics'] if options.may_change_statistics else []))
