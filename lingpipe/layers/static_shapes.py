"""Static shapes of tensors and TensorSpecs, which must be known before anything runs."""
from __future__ import annotations

import math

import tensorflow as tf


def static_shape(value: tf.Tensor | tf.TensorSpec, path: str, what: str) -> list[int]:
    """The dimensions of a tensor or TensorSpec.

    Raises:
      ValueError: one is unknown. The message says that `what` of the layer `path` needs it, and how
        to give it.
    """
    shape = tf.TensorShape(value.shape)
    if not shape.is_fully_defined():
        if shape.rank is None:
            text = 'of unknown rank'
        else:
            text = '[' + ', '.join('?' if n is None else str(n) for n in shape) + ']'
        raise ValueError(f'{path}: {what} is {text}, but every dimension must be known before '
                         'anything runs; give the shape of one micro-batch: batch the input with a '
                         'fixed size (drop_remainder=True) and pad the rest.')
    dimensions: list[int] = shape.as_list()
    return dimensions


def num_elements(value: tf.Tensor | tf.TensorSpec) -> int:
    """The number of scalars of a tensor or TensorSpec, whose shape must be known."""
    assert tf.TensorShape(value.shape).is_fully_defined(), value
    return math.prod(value.shape)


def num_bytes(value: tf.Tensor | tf.TensorSpec) -> int:
    """The bytes of a tensor or TensorSpec, whose shape must be known."""
    bytes_per_element: int = value.dtype.size
    return num_elements(value) * bytes_per_element


def as_spec(value: tf.Tensor | tf.TensorSpec | tf.Variable) -> tf.TensorSpec:
    """The TensorSpec of a tensor, or of anything with a shape and a dtype."""
    return tf.TensorSpec(tf.TensorShape(value.shape), tf.as_dtype(value.dtype))
