"""Histograms: how weights, gradients and optimizer slots are distributed."""
from __future__ import annotations

import fnmatch
import os

import numpy as np
import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.training.hooks.hook import Hook, HookedRun, How

_WEIGHTS, _GRADIENTS = 'weights/', 'gradients/'   # what keys begin with


class Histograms(Hook):
    """Writes histograms for TensorBoard, in LOGDIR/tensorboard/histograms.

    A call copies each variable from its device once. Gradients are summed in place on the device of
    each cell and used up by its update, so steps whose gradients are drawn have a graph of their
    own, and hold the gradients a second time; see Program.train_step.
    """

    class Params(Hook.Params):
        """What is drawn, and how often."""
        every_steps: int = field(100)
        keys: tuple[str, ...] = field(
            ('*',), "Keys of variables as in checkpoints, with * for any text: 'weights/*' are the "
                    "weights, the others are the optimizer's slots and averages. 'gradients/*' are "
                    'the gradients, which no other key names.')

    params: Params

    def __init__(self, params: Params):
        super().__init__(params)
        self._writer: tf.summary.SummaryWriter | None = None

    @property
    def wants_gradients(self) -> bool:
        """Whether a key names gradients."""
        return any(key.startswith(_GRADIENTS) for key in self.params.keys)

    def on_start(self, run: HookedRun, step: int) -> None:
        """Raises ValueError if a key names nothing."""
        weights = [key for key in run.variables if key.startswith(_WEIGHTS)]
        gradients = [_GRADIENTS + key.removeprefix(_WEIGHTS) for key in weights]
        for key in self.params.keys:
            if not fnmatch.filter([*run.variables, *gradients], key):
                raise ValueError(f'keys: {key!r} names no variable and no gradient; they look like '
                                 f'{", ".join([*list(run.variables)[:3], *gradients[:1]])}')

    def on_step(self, run: HookedRun, step: int, results: object) -> None:
        """Writes the histograms."""
        with tf.device('CPU:0'):
            if self._writer is None:
                directory = os.path.join(run.logdir, 'tensorboard', 'histograms')
                self._writer = tf.summary.create_file_writer(directory)
            with self._writer.as_default():
                for key, variable in run.variables.items():
                    if self._is_drawn(key) and variable.dtype.is_floating:
                        self._draw(key, variable.numpy(), step)
                for path, gradient in run.gradients.items():
                    if self._is_drawn(_GRADIENTS + path):
                        self._draw(_GRADIENTS + path, gradient, step)
            self._writer.flush()

    def on_end(self, run: HookedRun, how: How) -> None:
        """Closes the file."""
        if self._writer is not None:
            self._writer.close()

    def _is_drawn(self, key: str) -> bool:
        return any(fnmatch.fnmatchcase(key, one) for one in self.params.keys
                   if key.startswith(_GRADIENTS) == one.startswith(_GRADIENTS))

    def _draw(self, key: str, values: np.ndarray, step: int) -> None:
        """Writes one histogram, of the numbers that are finite."""
        values = values.astype(np.float32)
        tf.summary.histogram(key, values[np.isfinite(values)], step=step)
