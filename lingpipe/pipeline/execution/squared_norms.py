"""Squared norms: half the sum of squares of every gradient of a cell, on its device."""
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import tensorflow as tf

from lingpipe.learning.gradient import Gradient, numbers
from lingpipe.learning.trained_layer import TrainedLayer
from lingpipe.pipeline.execution.alike_layers import AlikeLayers
from lingpipe.pipeline.execution.gradients import Gradients


class SquaredNorms:
    """Computes half the sum of squares of gradients."""

    def __init__(self, gradients: Gradients, alike: AlikeLayers, clips: bool):
        """Adds nothing to a graph yet.

        Args:
          gradients: of the replica.
          alike: calls functions of layers.
          clips: whether gradients are clipped. Then sums that overflow are computed again in
            float64.
        """
        self._gradients, self._alike, self._clips = gradients, alike, clips

    def of(self, layers: Sequence[TrainedLayer], reached: Collection[str],
           inverse_weight: tf.Tensor, foreign: Mapping[str, Gradient]) -> tf.Tensor:
        """Half the sum of squares of every owned gradient, [n] float64; 0 for a missing gradient.

        The gradients are computed one after the other, so that only one is in memory at a time.
        """
        def squares(layer: TrainedLayer, inverse_weight: tf.Tensor,
                    dtype: tf.DType = tf.float32) -> tf.Tensor:
            """Computes half the sum of squares of each gradient of a layer."""
            halves: list[tf.Tensor] = []
            for path in layer.weights:
                if path not in reached:
                    halves.append(tf.zeros([], tf.float64))
                    continue
                with tf.control_dependencies(halves[-1:]):
                    gradient = numbers(self._gradients.mean(path, inverse_weight, foreign))
                    wide = (tf.cast(gradient, dtype) if dtype.size > gradient.dtype.size
                            else gradient)
                    halves.append(tf.cast(tf.nn.l2_loss(wide), tf.float64))
            return tf.stack(halves)

        def squares_in_float64(layer: TrainedLayer, inverse_weight: tf.Tensor) -> tf.Tensor:
            return squares(layer, inverse_weight, tf.float64)

        of_layers: list[tf.Tensor] = []
        for layer in layers:  # One after the other.
            with tf.control_dependencies(of_layers[-1:]):
                halves = self._alike.call(squares, layer, self._gradients, reached, inverse_weight)
            if self._clips:   # What overflows is computed again.
                is_finite = tf.math.is_finite(halves)
                again = self._alike.call(
                    squares_in_float64, layer, self._gradients, reached, inverse_weight,
                    only_if=~tf.reduce_all(is_finite))
                halves = tf.where(is_finite, halves, again)
            of_layers.append(halves)
        return tf.concat(of_layers, 0) if of_layers else tf.zeros([0], tf.float64)
