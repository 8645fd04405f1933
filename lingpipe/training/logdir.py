"""Logdir: checks and records which experiment a logdir belongs to."""
from __future__ import annotations

import os
import time
from collections.abc import Sequence

from absl import logging

from lingpipe.checkpoint import side_files
from lingpipe.process.error_text import reason
from lingpipe.training.experiment import Experiment
from lingpipe.training.newest_checkpoint import newest_step
from lingpipe.training.recorded_params import params_in, params_of_newest_checkpoint, text_of
from lingpipe.training.resumption import Difference, check_resumable, differences_text, warn_of_plan


def check(logdir: str, params: Experiment.Params, allowed: Sequence[str] = ()) -> None:
    """Raises ValueError if a run of another experiment is there. Unlike `claim`, writes nothing."""
    path = os.path.join(logdir, 'params.txt')
    stored = text_of(path)
    if stored == params.to_text() or newest_step(logdir) is None:
        return
    recorded = params_of_newest_checkpoint(logdir)
    if recorded is None and stored != '':
        recorded = params_in(path, stored, params)
    if recorded is not None:
        _check_resumable(logdir, recorded, params, allowed)


def claim(logdir: str, params: Experiment.Params, allowed: Sequence[str] = ()) -> None:
    """Writes LOGDIR/params.txt, unless it says the same already.

    Checkpoints keep the text of their Params too. It takes precedence over params.txt, which is set
    aside if it is damaged or belongs to another experiment than the newest checkpoint.

    Args:
      logdir: the directory to claim for this run.
      params: those of this run.
      allowed: what may change in a run that goes on; see check_resumable. Such a change is logged,
        and kept in LOGDIR/params_history.txt.

    Raises:
      ValueError: a run of another experiment is there.
      OSError: it cannot be written.
    """
    path = os.path.join(logdir, 'params.txt')
    stored = text_of(path)
    if stored == params.to_text():
        return
    is_usable = stored is not None
    if newest_step(logdir) is not None:
        is_usable = _is_usable_beside_checkpoints(logdir, path, stored, params, allowed)
    if not is_usable:
        side_files.set_aside(
            path, 'it is damaged, or tells of another experiment than the checkpoints')
    try:
        os.makedirs(logdir, exist_ok=True)
        side_files.write_text(path, params.to_text())
    except OSError as error:
        raise OSError(f'{logdir} cannot be written: {reason(error)}; choose another '
                      'logdir.') from error


def _is_usable_beside_checkpoints(logdir: str, path: str, stored: str | None,
                                  params: Experiment.Params, allowed: Sequence[str]) -> bool:
    """Whether params.txt may be overwritten, rather than set aside.

    Args:
      logdir: has checkpoints.
      path: of params.txt.
      stored: its text; '' if there is none, None if it cannot be read.
      params: those of this run.
      allowed: what may change.

    Raises:
      ValueError: the checkpoints belong to another experiment or, if they do not say to which,
        params.txt does.
    """
    recorded = params_of_newest_checkpoint(logdir)
    if recorded is not None:
        changes = _check_resumable(logdir, recorded, params, allowed)
        warn_of_plan(recorded, params)
        if changes and not _tells_of(stored or '', params, ()):   # They are not recorded yet.
            _record_changes(logdir, changes)
        return stored == '' or stored is not None and _tells_of(stored, params, allowed)
    if stored == '':
        logging.warning('neither params.txt nor a checkpoint in %s tells whose experiment is '
                        'there; it goes on as this one', logdir)
    else:
        changes = _check_resumable(logdir, params_in(path, stored, params), params, allowed)
        if changes:
            _record_changes(logdir, changes)
    return stored is not None


def _check_resumable(logdir: str, stored: Experiment.Params, params: Experiment.Params,
                     allowed: Sequence[str]) -> list[Difference]:
    """As check_resumable; errors name the logdir."""
    try:
        return check_resumable(stored, params, allowed)
    except ValueError as error:
        raise ValueError(f'cannot resume training in {logdir}: {error}') from error


def _record_changes(logdir: str, changes: Sequence[Difference]) -> None:
    """Logs what changes in a run that goes on, and adds it to LOGDIR/params_history.txt."""
    step = newest_step(logdir)
    logging.warning('after step %s, as --allow_change lets it: %s', step, differences_text(changes))
    if any(name == 'task.learner.optimizer' for name, _, _ in changes):
        logging.warning('the other optimizer takes over slots of the same names, which may mean '
                        'something else to it; for new ones, use initialize_from in a new logdir')
    path = os.path.join(logdir, 'params_history.txt')
    heading = f'# after step {step}, {time.strftime("%Y-%m-%d %H:%M:%S")}\n'
    lines = [f'{name} : {before!r} -> {now!r}\n' for name, before, now in changes]
    try:
        side_files.end_last_line(path)
        with open(path, 'a', encoding='utf-8') as file:
            file.writelines([heading, *lines])
    except OSError as error:
        logging.warning('%s cannot be written: %s', path, error.strerror)


def _tells_of(text: str, params: Experiment.Params, allowed: Sequence[str]) -> bool:
    """Whether a text holds Params with which a run began that can resume with `params`."""
    try:
        check_resumable(Experiment.Params.from_text(text), params, allowed)
    except ValueError:
        return False
    return True
