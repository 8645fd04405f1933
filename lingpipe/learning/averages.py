"""Averages: the moving averages of a layer's weights, which evaluation uses."""
from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf


class Averages:
    """The moving averages of the weights of one layer, beside which they stand.

    Attributes:
      variables: path of the weight -> its average; empty if there is no decay.
    """

    def __init__(self, weights: Mapping[str, tf.Variable], max_decay: float | None,
                 warms_up: bool):
        """Makes averages that begin as the weights.

        Args:
          weights: by path.
          max_decay: the decay; none: there are no averages.
          warms_up: whether the decay after n updates is at most (1 + n) / (10 + n).
        """
        self.variables: dict[str, tf.Variable] = {}
        self._max_decay, self._warms_up = max_decay, warms_up
        if max_decay is not None:
            self.variables = {
                path: tf.Variable(tf.cast(weight, accumulator_dtype(weight.dtype)),
                                  trainable=False, name=f'ema/{path}')
                for path, weight in weights.items()}

    def decay(self, num_updates: tf.Tensor) -> tf.Tensor | None:
        """The decay in the update after `num_updates`, or None if there are no averages.

        That of the first update is 0, so that the initial weights are forgotten, as in Keras.
        """
        if not self.variables:
            return None
        n = tf.cast(num_updates, tf.float32)
        decay = tf.constant(self._max_decay, tf.float32)
        if self._warms_up:
            decay = tf.minimum(decay, (1. + n) / (10. + n))
        return tf.where(n > 0., decay, 0.)

    def update(self, path: str, weight: tf.Variable, decay: tf.Tensor | None) -> list[tf.Tensor]:
        """Moves the average of a weight, if there is one; returns what is read after the write."""
        if path not in self.variables:
            return []
        average = self.variables[path]
        value = tf.cast(weight, average.dtype)
        average.assign(value + tf.cast(decay, average.dtype) * (average - value))
        return [average.read_value()]


def accumulator_dtype(dtype: tf.DType) -> tf.DType:
    """The dtype of sums and averages of values of a floating `dtype`: the same, or float32."""
    return tf.float32 if dtype.size < tf.float32.size else dtype
