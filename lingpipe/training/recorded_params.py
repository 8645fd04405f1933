"""Recorded params: those of the run that a logdir holds, from its checkpoints or params.txt."""
from __future__ import annotations

import os

from lingpipe.training.experiment import Experiment
from lingpipe.training.newest_checkpoint import checkpoints_in, newest_step


def text_of(path: str) -> str | None:
    """The text of a file; '' if there is none, None if it cannot be read."""
    try:
        with open(path, encoding='utf-8', errors='replace') as file:
            return file.read()
    except FileNotFoundError:
        return ''
    except OSError:
        return None


def params_in(path: str, text: str | None) -> Experiment.Params:
    """The Params of params.txt, where nothing else tells what they are."""
    try:
        if text is None:
            raise ValueError('it is no file, or its permissions forbid it')
        return Experiment.Params.from_text(text)
    except ValueError as error:
        raise ValueError(f'{path} cannot be read: {error}; if it is the same experiment, move that '
                         f'file away, or else choose another logdir.') from error


def recorded(logdir: str) -> Experiment.Params | None:
    """The Params of the run that a logdir holds; None if it holds none that can be read."""
    if newest_step(logdir) is not None:
        params = params_of_newest_checkpoint(logdir)
        if params is not None:
            return params
    try:
        return Experiment.Params.from_text(text_of(os.path.join(logdir, 'params.txt')) or '')
    except ValueError:
        return None


def params_of_newest_checkpoint(logdir: str) -> Experiment.Params | None:
    """The Params that the newest whole checkpoint keeps, if it keeps any that can be read."""
    metadata = checkpoints_in(logdir).newest_metadata()
    try:
        return Experiment.Params.from_text(metadata['params'])
    except (KeyError, ValueError):
        return None
