"""Histograms: how weights, and what the optimizer keeps of gradients, are distributed."""
from __future__ import annotations

import fnmatch
import os

import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.training.hooks.hook import Hook, HookedRun, How


class Histograms(Hook):
    """Writes histograms of variables for TensorBoard, in LOGDIR/tensorboard/histograms.

    A call copies each variable from its device once. The gradients of a step are summed in place on
    the device of each cell and used up by its update; to see them, every step would have to copy
    them first. What an optimizer keeps of them costs nothing more: SGD's momentum and Adam's first
    moment are running means of the gradients, and are among the variables.
    """

    class Params(Hook.Params):
        """The variables that are drawn, and how often."""
        every_steps: int = field(100)
        keys: tuple[str, ...] = field(
            ('*',), "Keys of variables as in checkpoints, with * for any text: 'weights/*' are the "
                    "weights, the others are the optimizer's slots and averages.")

    params: Params

    def __init__(self, params: Params):
        super().__init__(params)
        self._writer: tf.summary.SummaryWriter | None = None

    def on_start(self, run: HookedRun, step: int) -> None:
        """Raises ValueError if a key names no variable."""
        for key in self.params.keys:
            if not fnmatch.filter(run.variables, key):
                raise ValueError(f'keys: {key!r} names no variable; they look like '
                                 f'{", ".join(list(run.variables)[:3])}')

    def on_step(self, run: HookedRun, step: int, results: object) -> None:
        """Writes the histograms."""
        with tf.device('CPU:0'):
            if self._writer is None:
                directory = os.path.join(run.logdir, 'tensorboard', 'histograms')
                self._writer = tf.summary.create_file_writer(directory)
            with self._writer.as_default():
                for key, variable in run.variables.items():
                    is_asked_for = any(fnmatch.fnmatchcase(key, one) for one in self.params.keys)
                    if is_asked_for and variable.dtype.is_floating:
                        tf.summary.histogram(key, tf.cast(variable.numpy(), tf.float32), step=step)
            self._writer.flush()

    def on_end(self, run: HookedRun, how: How) -> None:
        """Closes the file."""
        if self._writer is not None:
            self._writer.close()
