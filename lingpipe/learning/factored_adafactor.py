"""FactoredAdafactor: Adafactor that keeps only rows and columns of second moments.

keras.optimizers.Adafactor keeps their product as well, a slot of the weight's own size that each
update overwrites before it is read. It has no momentum, always bounds the learning rate by the
step, and always scales updates by the weight.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from lingpipe.learning.gradient import Gradient


class FactoredAdafactor(keras.optimizers.Adafactor):  # type: ignore[misc]  # Keras has no types.
    """Shazeer and Stern, arXiv:1804.04235, algorithms 4 and 5.

    For a weight W with the gradient G, in step t, where the last two axes of W are factored:

        rho    = min(learning rate, 1 / sqrt(t))
        alpha  = max(epsilon_2, rms(W)) rho
        beta_2 = 1 - t^beta_2_decay
        R      = beta_2 R + (1 - beta_2) mean of (G^2 + epsilon_1) over the last axis
        C      = beta_2 C + (1 - beta_2) mean of (G^2 + epsilon_1) over the last axis but one
        V      = R C / mean of R over its last axis
        U      = G / sqrt(V)
        U      = U / max(1, rms(U) / clip_threshold)
        W      = W - alpha U

    With momentum, an average of the updates is subtracted, as in the authors' implementation (in
    Tensor2Tensor): M = beta_1 M + (1 - beta_1) alpha U. A weight of rank 0 or 1 has a whole slot V.
    """

    def __init__(self, *, beta_1: float = 0., bounds_rate: bool = True,
                 scales_by_weight: bool = True, **others: Any):
        """
        Args:
          beta_1: decay of the average of updates; 0: there is none.
          bounds_rate: whether rho is at most 1 / sqrt(t), as it always is in Keras.
          scales_by_weight: whether alpha has the factor max(epsilon_2, rms(W)).
          others: the arguments of keras.optimizers.Adafactor.
        """
        super().__init__(**others)
        self.beta_1, self.bounds_rate, self.scales_by_weight = beta_1, bounds_rate, scales_by_weight

    def build(self, var_list: Sequence[keras.Variable]) -> None:
        """Makes the slots: lists with one for each weight, or None."""
        if self.built:
            return
        keras.optimizers.Optimizer.build(self, var_list)
        self._r = [self._slot(weight, weight.shape[:-1]) if _is_factored(weight) else None
                   for weight in var_list]
        self._c = [self._slot(weight, [*weight.shape[:-2], weight.shape[-1]])
                   if _is_factored(weight) else None for weight in var_list]
        self._v = [None if _is_factored(weight) else self._slot(weight, weight.shape)
                   for weight in var_list]
        self._momentums = (self.add_optimizer_variables(var_list, 'momentum') if self.beta_1
                           else [None] * len(var_list))

    def _slot(self, weight: keras.Variable, shape: Sequence[int]) -> keras.Variable:
        return self.add_variable(shape, dtype=weight.dtype, name=weight.name)

    def update_step(self, gradient: Gradient, variable: keras.Variable | tf.Variable,
                    learning_rate: tf.Tensor) -> None:
        """Updates a weight and its slots."""
        # What computes with the gradient is of keras.ops, which treat rows as Keras does.
        dtype = variable.dtype
        step = tf.cast(self.iterations + 1, dtype)
        rate = tf.cast(learning_rate, dtype)
        if self.bounds_rate:
            rate = tf.minimum(rate, 1 / tf.sqrt(step))
        if self.scales_by_weight:
            rate = tf.maximum(tf.cast(self.epsilon_2, dtype), self._rms(variable)) * rate

        index = self._get_variable_index(variable)
        beta_2 = 1 - tf.pow(step, self.beta_2_decay)
        squares = keras.ops.add(keras.ops.square(gradient), self.epsilon_1)
        update = keras.ops.divide(gradient, tf.sqrt(self._second_moment(index, squares, beta_2)))
        excess = tf.maximum(tf.ones([], dtype), self._rms(update) / self.clip_threshold)
        update = tf.convert_to_tensor(keras.ops.divide(update, excess)) * rate

        momentum = self._momentums[index]
        if momentum is not None:
            update = self.beta_1 * momentum.value + (1 - self.beta_1) * update
            self.assign(momentum, update)
        self.assign_sub(variable, update)

    def _second_moment(self, index: int, squares: tf.Tensor, beta_2: tf.Tensor) -> tf.Tensor:
        """Averages the squares of a gradient; returns their average, or R C / mean of R."""
        if not _is_factored(squares):
            return self._averaged(self._v[index], squares, beta_2)
        rows = self._averaged(self._r[index], tf.reduce_mean(squares, -1), beta_2)
        columns = self._averaged(self._c[index], tf.reduce_mean(squares, -2), beta_2)
        rows /= tf.reduce_mean(rows, -1, keepdims=True)
        return rows[..., None] * columns[..., None, :]

    def _averaged(self, slot: keras.Variable, value: tf.Tensor, beta_2: tf.Tensor) -> tf.Tensor:
        """Moves a slot to a value, and returns the new one."""
        average = beta_2 * slot.value + (1 - beta_2) * value
        self.assign(slot, average)
        return average


def _is_factored(weight: keras.Variable | tf.Tensor) -> bool:
    return len(weight.shape) >= 2
