"""Static shapes: those of tensors and TensorSpecs, which have to be known before anything runs."""
from __future__ import annotations

import math
from typing import Any

import tensorflow as tf


def static_shape(value: Any, path: str, what: str) -> list[int]:
    """The dimensions of a tensor or TensorSpec.

    Raises:
      ValueError: one is unknown; says that `what` of the layer `path` needs it, and how to give it.
    """
    shape = tf.TensorShape(value.shape)
    if not shape.is_fully_defined():
        found = 'of unknown rank' if shape.rank is None else '[' + ', '.join('?' if n is None else str(n) for n in shape) + ']'
        raise ValueError(f'{path}: {what} is {found}, but every dimension must be known before anything runs; give the shape of one '
                         'micro-batch: batch the input with a fixed size (drop_remainder=True) and pad the rest.')
    return shape.as_list()


def num_elements(value: Any) -> int:
    """The number of scalars of a tensor or TensorSpec; its shape must be known."""
    assert tf.TensorShape(value.shape).is_fully_defined(), value
    return math.prod(value.shape)


def num_bytes(value: Any) -> int:
    """The bytes of a tensor or TensorSpec; its shape must be known."""
    return num_elements(value) * value.dtype.size


def as_spec(value: Any) -> tf.TensorSpec:
    """The TensorSpec of a tensor or of anything with a shape and a dtype."""
    return tf.TensorSpec(tf.TensorShape(value.shape), tf.as_dtype(value.dtype))
