"""ArrayInput: examples that are all in memory."""
from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.input.base import Input


class ArrayInput(Input):
    """Arrays in memory. Subclasses override `load`."""

    def load(self) -> dict[str, np.ndarray]:
        """The data: by name, arrays whose first dimension counts the examples. Called once."""
        raise NotImplementedError(f'{type(self).__name__} has no load')

    def num_examples(self) -> int:
        """Rows of the arrays."""
        return int(next(iter(self._arrays.values())).shape[0])

    def read(self, index: tf.Tensor) -> dict[str, Any]:
        """The rows [n, ...] of index, int64 [n]."""
        return {name: tf.gather(array, index) for name, array in self._arrays.items()}

    @functools.cached_property
    def _arrays(self) -> dict[str, tf.Tensor]:
        arrays = self.load()
        lengths = {name: len(array) for name, array in arrays.items()}
        if not arrays:
            raise ValueError(f'load of {type(self).__name__} gives no arrays; return a dict of name -> array.')
        if len(set(lengths.values())) > 1:
            raise ValueError(f'the arrays of {type(self).__name__} have different lengths: '
                             f'{", ".join(f"{name} {n}" for name, n in lengths.items())}; give one row to every example.')
        with tf.device('CPU:0'):
            return {name: tf.convert_to_tensor(array) for name, array in arrays.items()}
