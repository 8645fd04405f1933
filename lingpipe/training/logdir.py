"""Logdir: whose experiment it holds."""
from __future__ import annotations

import os

from absl import logging

from lingpipe.checkpoint import side_files
from lingpipe.training.experiment import Experiment
from lingpipe.training.newest_checkpoint import checkpoints_in, newest_step
from lingpipe.training.resumption import check_resumable


def claim(logdir: str, params: Experiment.Params) -> None:
    """Writes LOGDIR/params.txt, unless it says the same already.

    Checkpoints keep the text of their Params too, which counts for more than params.txt: that is
    set aside where it is damaged or tells of another experiment than the newest checkpoint.

    Raises:
      ValueError: a run of another experiment is there.
      OSError: it cannot be written.
    """
    path = os.path.join(logdir, 'params.txt')
    stored = _read(path)
    if stored == params.to_text():
        return
    is_usable = stored is not None
    if newest_step(logdir) is not None:
        is_usable = _is_usable_beside_checkpoints(logdir, path, stored, params)
    if not is_usable:
        side_files.set_aside(
            path, 'it is damaged, or tells of another experiment than the checkpoints')
    try:
        os.makedirs(logdir, exist_ok=True)
        side_files.write_text(path, params.to_text())
    except OSError as error:
        raise OSError(f'{logdir} cannot be written: {error}; choose another logdir.') from error


def _is_usable_beside_checkpoints(logdir: str, path: str, stored: str | None,
                                  params: Experiment.Params) -> bool:
    """Whether params.txt may be written over, rather than set aside.

    Args:
      logdir: has checkpoints.
      path: of params.txt.
      stored: its text; '' if there is none, None if it cannot be read.
      params: those of this run.

    Raises:
      ValueError: the checkpoints, or params.txt if they do not tell, are of another experiment.
    """
    recorded = _recorded_params(logdir)
    if recorded is not None:
        _check_resumable(logdir, recorded, params)
        return stored == '' or stored is not None and _tells_of(stored, params)
    if stored == '':
        logging.warning('neither params.txt nor a checkpoint in %s tells whose experiment is '
                        'there; it goes on as this one', logdir)
    else:
        _check_resumable(logdir, _parsed(path, stored), params)
    return stored is not None


def _read(path: str) -> str | None:
    """The text of a file; '' if there is none, None if it cannot be read."""
    try:
        with open(path, encoding='utf-8', errors='replace') as file:
            return file.read()
    except FileNotFoundError:
        return ''
    except OSError:
        return None


def _parsed(path: str, text: str | None) -> Experiment.Params:
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
        params = _recorded_params(logdir)
        if params is not None:
            return params
    try:
        return Experiment.Params.from_text(_read(os.path.join(logdir, 'params.txt')) or '')
    except ValueError:
        return None


def _recorded_params(logdir: str) -> Experiment.Params | None:
    """The Params that the newest whole checkpoint keeps, if it keeps any that can be read."""
    metadata = checkpoints_in(logdir).newest_metadata()
    try:
        return Experiment.Params.from_text(metadata['params'])
    except (KeyError, ValueError):
        return None


def _check_resumable(logdir: str, stored: Experiment.Params, params: Experiment.Params) -> None:
    try:
        check_resumable(stored, params)
    except ValueError as error:
        raise ValueError(f'cannot resume training in {logdir}: {error}') from error


def _tells_of(text: str, params: Experiment.Params) -> bool:
    """Whether a text is that of Params whose run can resume with `params`."""
    try:
        check_resumable(Experiment.Params.from_text(text), params)
    except ValueError:
        return False
    return True
