"""Fused optimizers: those of Keras that TensorFlow can update a weight for in one op, in place.

Keras updates a weight by a dozen ops, each of which writes a tensor of the weight's size, and gives
most slots a new tensor. That takes time, memory for the tensors, and more of it where TensorFlow's
pool finds no free piece of the right size ("Bytes a weight" in docs/benchmarks.md).

The formulas are those of Keras, and so are the numbers but for rounding. What TensorFlow's ops
cannot do as exactly stays with Keras: rows of a gradient, rounded slots, narrow dtypes, and some
values of rho. So does Adam, whose beta_2 is 0.999 by default; Keras updates Adam's
slots in place anyway.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import keras
import tensorflow as tf

from lingpipe.learning.gradient import Gradient

FUSED_DTYPES = (tf.float32, tf.float64)   # in narrower ones, ops and Keras round differently


class FusedSGD(keras.optimizers.SGD):  # type: ignore[misc]  # Keras has no types.
    """Gradient descent, with or without momentum."""

    def update_step(self, gradient: Gradient, variable: tf.Variable, learning_rate: tf.Tensor
                    ) -> None:
        """Updates a weight and its slot; the rate is in the dtype of the weight."""
        momentums = [self.momentums[self._get_variable_index(variable)].value
                     ] if self.momentum else []
        if not _can_fuse(gradient, [variable, *momentums]):
            super().update_step(gradient, variable, learning_rate)
        elif momentums:
            tf.raw_ops.ResourceApplyKerasMomentum(
                var=variable.handle, accum=momentums[0].handle, lr=learning_rate, grad=gradient,
                momentum=keras.ops.cast(self.momentum, variable.dtype.name),
                use_nesterov=self.nesterov)
        else:
            tf.raw_ops.ResourceApplyGradientDescent(
                var=variable.handle, alpha=learning_rate, delta=gradient)


class FusedRMSprop(keras.optimizers.RMSprop):  # type: ignore[misc]
    """Tieleman and Hinton, 2012, with momentum, not centered; else Keras' own ops."""

    def update_step(self, gradient: Gradient, variable: tf.Variable, learning_rate: tf.Tensor
                    ) -> None:
        """Updates a weight and its slots; the rate is in the dtype of the weight."""
        index = self._get_variable_index(variable)
        slots = [kept[index].value for kept in (self._velocities, self._momentums) if kept]
        if not (fuses_rmsprop(self) and _can_fuse(gradient, [variable, *slots])):
            super().update_step(gradient, variable, learning_rate)
            return
        rho, momentum, epsilon = (tf.constant(value, variable.dtype)
                                  for value in (self.rho, self.momentum, self.epsilon))
        tf.raw_ops.ResourceApplyRMSProp(
            var=variable.handle, ms=slots[0].handle, mom=slots[1].handle, lr=learning_rate,
            rho=rho, momentum=momentum, epsilon=epsilon, grad=gradient)


class RMSPropSettings(Protocol):
    """The fields of RMSProp by which it is one op or several."""
    rho: float
    momentum: float
    centered: bool


def fuses_rmsprop(settings: RMSPropSettings) -> bool:
    """Whether TensorFlow's op of RMSProp with momentum gives the numbers of Keras.

    It computes v += (g^2 - v) (1 - rho) in the dtype of the weight. In float32 and near 1, what is
    left of 1 - rho is wrong in its sixth digit (0.99) or fourth (0.9999). Near 0, g^2 is lost
    beside a much greater v.
    """
    return bool(settings.momentum) and not settings.centered and 0.5 <= settings.rho <= 0.99


def _can_fuse(gradient: Gradient, variables: Iterable[object]) -> bool:
    """Whether TensorFlow's ops update these: no rows of a gradient, and no rounded slots."""
    return not isinstance(gradient, tf.IndexedSlices) and all(
        isinstance(variable, tf.Variable) and variable.dtype in FUSED_DTYPES
        for variable in variables)
