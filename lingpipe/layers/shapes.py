"""Shapes inside fprop: known dimensions stay numbers, others become scalar tensors."""
from __future__ import annotations

import math

import tensorflow as tf

from lingpipe.layers.static_shapes import static_shape


def dims(x: tf.Tensor) -> list[int | tf.Tensor]:
    """The dimensions of x: an int where one is known, otherwise an int32 scalar tensor."""
    known: list[int | None] = x.shape.as_list()
    if None not in known:
        return list(known)
    dynamic = tf.shape(x)
    return [dynamic[i] if n is None else n for i, n in enumerate(known)]


def as_rows(x: tf.Tensor) -> tf.Tensor:
    """[..., D] -> [rows, D]."""
    return x if x.shape.rank == 2 else tf.reshape(x, [-1, x.shape[-1]])


def num_rows(x: tf.Tensor | tf.TensorSpec, path: str) -> int:
    """The product of all dimensions but the last. Raises ValueError if one is unknown."""
    return math.prod(static_shape(x, path, 'x')[:-1])


def check_last_dim(x: tf.Tensor | tf.TensorSpec, dim: int, path: str, what: str = 'x') -> None:
    """Raises ValueError unless x holds floating-point numbers and its last dimension is `dim`."""
    if x.dtype.is_complex:
        raise ValueError(f'{path}: {what} is {tf.as_dtype(x.dtype).name}, and a layer with weights '
                         'computes with floating-point numbers; give real and imaginary part as '
                         'channels, in the input or by a layer before it.')
    if not x.dtype.is_floating:
        raise ValueError(f'{path}: {what} is {tf.as_dtype(x.dtype).name}, and a layer with weights '
                         'computes with floating-point numbers; make them in the input, or by a '
                         'layer before it (layers.Cast, or Normalize of lingpipe.tasks.image for '
                         'images).')
    if x.shape.rank is None or x.shape.rank == 0 or x.shape[-1] != dim:
        raise ValueError(f'{path}: {what} is {x.shape}, but its last dimension must be {dim}, as '
                         'the Params say; correct the Params or the layer that writes it.')
