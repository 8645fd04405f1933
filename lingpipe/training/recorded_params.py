"""Recorded params: reads the Params of the run in a logdir from its checkpoints or params.txt."""
from __future__ import annotations

import json
import os
import re

from lingpipe.checkpoint.initialization import find_whole
from lingpipe.checkpoint.unreadable import MISSING, reading
from lingpipe.hyperparams import ParamsError
from lingpipe.training.experiment import Experiment
from lingpipe.training.newest_checkpoint import checkpoints_in, newest_step

_CLASS = re.compile(r'[\w.]+:[\w.]+')   # as Params name one


def text_of(path: str) -> str | None:
    """The text of a file; '' if there is none, None if it is a directory.

    Raises:
      UnreadableError: the system does not let this process read the file.
    """
    try:
        with reading(path), open(path, encoding='utf-8', errors='replace') as file:
            return file.read()
    except MISSING:
        return ''
    except IsADirectoryError:
        return None


def params_in(path: str, text: str | None, params: Experiment.Params) -> Experiment.Params:
    """The Params in params.txt of a logdir whose checkpoints do not keep any.

    Raises:
      ValueError: they cannot be read, perhaps because they belong to another experiment than
        `params`, whose classes do not exist here.
    """
    try:
        if text is None:
            raise ValueError('it is a directory')
        return Experiment.Params.from_text(text)
    except ValueError as error:
        where = error.path if isinstance(error, ParamsError) else ''
        there, here = value_in(text or '', where), value_in(params.to_text(), where)
        if where and there != here and _CLASS.fullmatch(there):
            raise ValueError(
                f'{os.path.dirname(path)} holds a run of another experiment, whose {where} is '
                f'{there}, and not {here or "unset"}; choose another logdir or, if {path} is '
                'damaged, move it away.') from error
        raise ValueError(f'{path} cannot be read: {error}; if it is the same experiment, move that '
                         f'file away, or else choose another logdir.') from error


def value_in(text: str, path: str) -> str:
    """What the text of Params says after a path; '' if it does not name the path."""
    lines = (line.partition(' : ') for line in text.splitlines())
    return next((value for name, _, value in lines if name == path), '')


def recorded_text(logdir: str) -> str:
    """The text of the Params of the run that a logdir holds, as it was written, or ''."""
    if newest_step(logdir) is None:
        return ''
    of_checkpoint: str = checkpoints_in(logdir).newest_metadata().get('params', '')
    return of_checkpoint or text_of(os.path.join(logdir, 'params.txt')) or ''


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


def origin_of_weights(directory: str) -> str:
    """Returns where weights come from, through all the runs that took them from one another.

    Args:
      directory: what the last of these runs names in `initialize_from.directory`.

    Returns:
      A file or a folder of another program, or the checkpoints of a run that started from scratch.
      That is `directory` itself unless checkpoints are there that say more.
    """
    passed: list[str] = []
    while directory and directory not in passed:
        passed.append(directory)
        try:
            text = find_whole(directory)[1]['metadata']['params']
        except (KeyError, OSError, ValueError):
            break
        directory = json.loads(value_in(text, 'initialize_from.directory') or '""') or directory
    return directory
