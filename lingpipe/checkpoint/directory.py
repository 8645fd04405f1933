"""Checkpoint directory: the checkpoints by their steps, and what a kill can leave beside them."""
from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection

from absl import logging

from lingpipe.checkpoint import files, side_files
from lingpipe.checkpoint.facts import STEP_NAME
from lingpipe.checkpoint.unreadable import MISSING, is_directory, reading


class CheckpointDirectory:
    """The directories of checkpoints, each of which is there whole or not at all.

    Attributes:
      path: where they are.
    """

    def __init__(self, path: str):
        self.path = path

    def steps(self) -> list[int]:
        """Returns the steps that are saved, oldest first.

        Raises:
          UnreadableError: the system does not let this process see what is there.
        """
        try:
            with reading(self.path):
                names = os.listdir(self.path)
        except MISSING:
            return []
        return sorted(int(match[1]) for name in names if (match := STEP_NAME.fullmatch(name))
                      and is_directory(os.path.join(self.path, name)))

    def of(self, step: int, prefix: str = '') -> str:
        """Returns the path of a step's checkpoint; with a prefix, of one not in use."""
        return os.path.join(self.path, f'{prefix}step-{step:08d}')

    def give_final_name(self, step: int, temporary: str, damaged: Collection[int]) -> None:
        """Renames a checkpoint that is written, after moving others out of its way.

        Args:
          step: of the checkpoint.
          temporary: where it is.
          damaged: steps whose checkpoints would count as the newest if they are of later steps.
        """
        for other in sorted({*damaged} & {*self.steps()}):
            os.replace(self.of(other), side_files.free_name(self.of(other, 'bad-')))

        final = self.of(step)
        if os.path.isdir(final):
            os.replace(final, self.of(step, 'old-'))
        side_files.make_way(final)
        os.replace(temporary, final)
        files.sync(self.path)

    def prune(self, kept_steps: Collection[int]) -> None:
        """Removes the checkpoints of all other steps."""
        for step in self.steps():
            if step not in kept_steps:
                # An evaluation may be reading the files; the next save tries again.
                with contextlib.suppress(OSError):
                    os.replace(self.of(step), self.of(step, 'tmp-gone-'))
                    shutil.rmtree(self.of(step, 'tmp-gone-'))

    def clean_up(self) -> None:
        """Removes what a kill has left, and finishes a replacement that a kill has interrupted."""
        for name in sorted(os.listdir(self.path)):
            path = os.path.join(self.path, name)
            replaced = os.path.join(self.path, name.removeprefix('old-'))
            if name.startswith('old-') and os.path.isdir(path) and not os.path.isdir(replaced):
                side_files.make_way(replaced)
                os.replace(path, replaced)
            elif name.startswith(('tmp-', 'old-')):
                remove(path)


def remove(path: str) -> None:
    """Removes a file, or a directory with all that is in it, if there is one.

    A warning says what cannot be removed.
    """
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.remove(path)
    except OSError as error:
        logging.warning('%s cannot be removed: %s; nothing needs it', path, error.strerror)
