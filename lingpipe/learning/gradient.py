"""Gradient: of one weight, dense or as rows of it; an index may occur several times among them."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import tensorflow as tf

Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices


def of_shape(gradient: Gradient, shape: Sequence[int]) -> Gradient:
    """The gradient of a weight of a shape, which rows must know to become dense."""
    if isinstance(gradient, tf.IndexedSlices):
        dense_shape = tf.constant(list(shape), tf.int64)
        return tf.IndexedSlices(gradient.values, gradient.indices, dense_shape)
    return gradient


def added(a: Gradient, b: Gradient) -> Gradient:
    """The sum of two gradients: all rows if both are rows, and else dense."""
    if isinstance(a, tf.IndexedSlices) and isinstance(b, tf.IndexedSlices):
        return tf.IndexedSlices(tf.concat([a.values, b.values], 0),
                                tf.concat([a.indices, b.indices], 0), a.dense_shape)
    return tf.convert_to_tensor(a) + tf.convert_to_tensor(b)


def scaled(gradient: Gradient, factor: tf.Tensor) -> Gradient:
    """The gradient times a number, in the gradient's dtype."""
    return _with_numbers(gradient, numbers(gradient) * tf.cast(factor, gradient.dtype))


def cast(gradient: Gradient, dtype: tf.DType) -> Gradient:
    """The gradient in a dtype."""
    return _with_numbers(gradient, tf.cast(numbers(gradient), dtype))


def numbers(gradient: Gradient) -> tf.Tensor:
    """All numbers of a gradient, those of each row by themselves."""
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _with_numbers(gradient: Gradient, values: tf.Tensor) -> Gradient:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return values
