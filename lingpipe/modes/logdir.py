"""Logdir: whose experiment it holds, and the newest weights in it."""
from __future__ import annotations

import os
from typing import Any

from lingpipe.checkpoint import Checkpointer
from lingpipe.experiment import Experiment, check_resumable


def claim(logdir: str, params: Any) -> None:
    """Writes LOGDIR/params.txt, unless it says the same already.

    Raises:
      ValueError: a training of another experiment is there.
      OSError: it cannot be written.
    """
    path = os.path.join(logdir, 'params.txt')
    text = ''
    if os.path.exists(path):
        with open(path, encoding='utf-8', errors='replace') as file:
            text = file.read()
    if text == params.to_text():
        return
    if text and newest_step(logdir) is not None:
        try:
            stored = Experiment.Params.from_text(text)
        except ValueError as error:
            raise ValueError(f'{path} cannot be read: {error}; if it is the same experiment, move that file away, or else choose another '
                             f'logdir.') from error
        try:
            check_resumable(stored, params)
        except ValueError as error:
            raise ValueError(f'{logdir} cannot be gone on with: {error}') from error
    try:
        os.makedirs(logdir, exist_ok=True)
        with open(f'{path}.new', 'w', encoding='utf-8') as file:
            file.write(params.to_text())
        os.replace(f'{path}.new', path)
    except OSError as error:
        raise OSError(f'{logdir} cannot be written: {error}; choose another logdir.') from error


def newest_step(logdir: str) -> int | None:
    """Of the newest checkpoint, or None."""
    return max(_checkpoints(logdir).steps(), default=None)


def restored(experiment: Any, logdir: str) -> tuple[Any, dict[str, Any]]:
    """The experiment's program with the weights of the newest checkpoint, and the checkpoint's metadata."""
    checkpointer = _checkpoints(logdir)
    if not checkpointer.steps():
        raise ValueError(f'{checkpointer.directory} has no checkpoint; train first, or correct --logdir.')
    program = experiment.make_program()
    metadata = checkpointer.restore(program.variables())
    assert metadata is not None
    return program, metadata


def _checkpoints(logdir: str) -> Checkpointer:
    return Checkpointer(os.path.join(logdir, 'checkpoints'), is_writer=False)
