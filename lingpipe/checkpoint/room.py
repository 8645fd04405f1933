"""Room: whether a checkpoint can be written at all, asked before a run rather than at its end."""
from __future__ import annotations

import shutil
from collections.abc import Mapping

import tensorflow as tf


def num_bytes(variables: Mapping[str, tf.Variable]) -> int:
    """Returns the bytes of a checkpoint of the variables, without names and metadata."""
    return sum((v.shape.num_elements() or 0) * v.dtype.size for v in variables.values())


def check_room(directory: str, variables: Mapping[str, tf.Variable]) -> None:
    """Checks that the file system of `directory` has room for one more checkpoint.

    A checkpoint is written beside those that are there, and only then are old ones removed.

    Raises:
      OSError: there is not enough room.
    """
    needed = num_bytes(variables)
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise OSError(f'{directory} has {free / 1e6:,.1f} MB free, but a checkpoint takes '
                      f'{needed / 1e6:,.1f} MB; make room or choose another logdir.')
