"""Chosen step: which checkpoint a person means by newest, best or a step."""
from __future__ import annotations

import re

from lingpipe.checkpoint.checkpointer import Checkpointer

NEWEST = 'newest'
BEST = 'best'


def check_name(checkpoint: str, of: str = '--checkpoint') -> None:
    """Raises ValueError unless a text is 'newest', 'best' or a step; `of` is who gave it."""
    if checkpoint not in (NEWEST, BEST) and not re.fullmatch(r'\d{1,18}', checkpoint):
        raise ValueError(f'{of}={checkpoint} is no checkpoint; write newest, best, or the '
                         f'number of a step, as 2000.')


def step_named(checkpointer: Checkpointer, checkpoint: str) -> int | None:
    """The step that is meant; None: the newest that is whole.

    Raises:
      ValueError: the text means no checkpoint, or no checkpoint is marked as the best. A
        step may have no checkpoint; that shows when it is restored.
    """
    check_name(checkpoint)
    if checkpoint == NEWEST:
        return None
    if checkpoint != BEST:
        return int(checkpoint)
    best = checkpointer.best()
    if best is None:
        raise ValueError(f'no checkpoint in {checkpointer.directory} is marked as the best, since '
                         f'no evaluation was made while it trained; use newest, or one of the '
                         f'steps {", ".join(map(str, checkpointer.steps())) or "(there is none)"}.')
    return best[0]
