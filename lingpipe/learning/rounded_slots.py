"""Rounded slots: optimizer slots in bfloat16, rounded stochastically.

Rounding to the nearest bfloat16 loses any change below 1/256 of a number, and Adam's second moment
moves by a thousandth of its distance in a step. So a number between two of bfloat16 becomes the
greater one as often as it is nearer to it, and its mean stays as it is. Keras has no such slots.

What is random depends on the experiment's seed, the weight and the number of updates alone, so that
results are the same for any partition, any number of replicas and after a resumption.
"""
from __future__ import annotations

import functools
import zlib
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from lingpipe.learning.gradient import Gradient

NUM_DRAWS = 8   # of random numbers for a weight in an update; each is for two slots


class RoundedSlot(keras.Variable):  # type: ignore[misc]  # Keras has no types.
    """A slot that is stored in bfloat16, and is read in the dtype of its weight.

    Between `open` and `close`, an optimizer reads and assigns exact values.
    """

    def __init__(self, weight: keras.Variable, initializer: Any, name: str):
        super().__init__(keras.initializers.get(initializer), shape=weight.shape,
                         dtype='bfloat16', trainable=False, name=name)
        self._dtype = weight.dtype   # what Keras computes in
        self._exact: tf.Tensor | None = None

    @property
    def stored(self) -> tf.Variable:
        """What a checkpoint holds."""
        return self._value

    @property
    def value(self) -> tf.Tensor:
        """The number that an optimizer reads."""
        return tf.cast(self._value, self._dtype) if self._exact is None else self._exact

    def open(self) -> None:
        """Begins an update."""
        self._exact = self.value

    def assign(self, value: Gradient) -> None:
        """Sets what is read from now on in this update."""
        assert self._exact is not None, 'a rounded slot is assigned in an update alone'
        self._exact = tf.cast(tf.convert_to_tensor(value), self._dtype)

    def close(self, noise: tf.Tensor) -> tf.Operation:
        """Ends an update, and stores what was assigned; `noise` is as in `rounded`."""
        exact, self._exact = self._exact, None
        return self._value.assign(rounded(exact, noise), read_value=False)


class RoundedSlots:
    """A mixin that rounds the slots of a Keras optimizer; it precedes the optimizer's class.

    These are the slots of a weight's own shape, unless the weight itself is as narrow.
    """

    def add_variable_from_reference(self, reference_variable: keras.Variable, name: str = 'slot',
                                    initializer: Any = 'zeros') -> keras.Variable:
        """Makes a slot."""
        if tf.as_dtype(reference_variable.dtype).size <= tf.bfloat16.size:
            return super().add_variable_from_reference(  # type: ignore[misc]
                reference_variable, name, initializer)
        slot = RoundedSlot(reference_variable, initializer, name)
        self._track_variable(slot)  # type: ignore[attr-defined]
        return slot

    def assign(self, variable: keras.Variable | tf.Variable, value: Gradient) -> None:
        """Assigns to a weight or a slot."""
        if isinstance(variable, RoundedSlot):
            variable.assign(value)
        else:
            super().assign(variable, value)  # type: ignore[misc]

    def assign_add(self, variable: keras.Variable | tf.Variable, value: Gradient) -> None:
        """Adds to a weight or a slot."""
        if isinstance(variable, RoundedSlot):
            variable.assign(variable.value + tf.convert_to_tensor(value))
        else:
            super().assign_add(variable, value)  # type: ignore[misc]

    def assign_sub(self, variable: keras.Variable | tf.Variable, value: Gradient) -> None:
        """Subtracts from a weight or a slot."""
        if isinstance(variable, RoundedSlot):
            variable.assign(variable.value - tf.convert_to_tensor(value))
        else:
            super().assign_sub(variable, value)  # type: ignore[misc]


@functools.cache
def with_rounded_slots(optimizer_class: type) -> type:
    """The class of an optimizer of Keras, but with rounded slots."""
    return type(f'{optimizer_class.__name__}WithRoundedSlots', (RoundedSlots, optimizer_class), {})


def seed_of(experiment_seed: int, path: str) -> int:
    """What distinguishes the random numbers of a weight from those of others."""
    return zlib.crc32(f'slots/{experiment_seed}/{path}'.encode())


def close_all(slots: Iterable[RoundedSlot], seed: tf.Tensor) -> list[tf.Operation]:
    """Ends an update of the slots of a weight, and returns the ops that store them.

    The seed is int64 [2]: that of the weight, and NUM_DRAWS times the number of updates.
    """
    ops = []
    for i, slot in enumerate(slots):
        if i % 2 == 0:
            numbers = tf.random.stateless_uniform(
                slot.shape, seed + [0, i // 2], minval=None, maxval=None,
                dtype=tf.uint32, alg='philox')
            noise = tf.bitwise.bitwise_and(numbers, tf.constant(0xffff, tf.uint32))
        else:
            noise = tf.bitwise.right_shift(numbers, tf.constant(16, tf.uint32))
        ops.append(slot.close(noise))
    return ops


def rounded(value: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """Rounds to bfloat16, so that the mean over the noise is the value.

    Args:
      value: floating; infinities and NaN stay as they are.
      noise: uint32 of the same shape, evenly distributed below 2^16.
    """
    # The lower half of a float32 is the distance to the next bfloat16 towards 0, in 2^-16 of the
    # distance of the two beside it. Floats are added, since not every device adds such integers.
    bits = tf.bitcast(tf.cast(value, tf.float32), tf.uint32)
    lower, upper, exponent = (
        tf.bitwise.bitwise_and(bits, tf.constant(mask, tf.uint32))
        for mask in (0x0000ffff, 0xffff0000, 0xff800000))
    towards_0 = tf.bitcast(upper, tf.float32)
    from_0 = towards_0 + tf.bitcast(exponent, tf.float32) * 2. ** -7
    is_up = tf.cast(lower, tf.float32) > tf.cast(noise, tf.float32)
    return tf.cast(tf.where(is_up, from_0, towards_0), tf.bfloat16)
