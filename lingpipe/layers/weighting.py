"""Weights of a loss: how much each example, token or element counts.

All losses follow the one rule of this file.

A weight has the first dimensions of what it weighs, and applies to everything below them:

    what is weighed      a weight of shape    applies to
    rows [b, T]          [b]                  all T rows of an example
                         [b, T]               each row
    elements [b, T, C]   [b]                  all T * C elements of an example
                         [b, T]               all C elements of a token
                         [b, T, C]            each element

A loss reads the mini-batch's `weight`, in which padding is 0, unless Params.reads names another
value. Such a value must be made from `weight`, as lingpipe.tasks.translation.padding does, or
padding counts.

What a loss is given may hold anything where the weight is 0, NaN too. It is replaced before it is
used, since 0 * NaN is NaN.
"""
from __future__ import annotations

import tensorflow as tf

from lingpipe.layers.shapes import dims


def is_real(dtype: tf.DType) -> bool:
    """Whether a dtype is of real numbers, as which booleans count."""
    return bool(dtype.is_floating or dtype.is_integer or dtype.is_bool)


def check_weight(weight: tf.Tensor | tf.TensorSpec, weighed: tf.TensorShape, path: str) -> None:
    """Raises ValueError unless a weight is of numbers and has the first dimensions of `weighed`."""
    if not is_real(weight.dtype):
        raise ValueError(f'{path}: weight is of {weight.dtype.name}, but weights are numbers; '
                         'correct the input or Params.reads.')
    rank = weight.shape.rank
    if rank is None or weighed.rank is None:
        raise ValueError(f'{path}: the number of dimensions of weight or of what it weighs is not '
                         'known; reshape it in the input.')
    if not 1 <= rank <= weighed.rank or not weighed[:rank].is_compatible_with(weight.shape):
        shapes = [str(weighed[:n]) for n in range(1, weighed.rank + 1)]
        fitting = f'{", ".join(shapes[:-1])} or {shapes[-1]}' if len(shapes) > 1 else shapes[0]
        raise ValueError(f'{path}: weight is {weight.shape}, but what it weighs is {weighed}: a '
                         'weight has the first dimensions of what it weighs and applies to '
                         f'everything below them, so it must be {fitting}; correct the input or '
                         'Params.reads.')


def expanded(weight: tf.Tensor, weighed: tf.TensorShape, path: str) -> tf.Tensor:
    """The weight as float32 without a gradient, of a shape that broadcasts to `weighed`.

    Raises:
      ValueError: it does not fit.
    """
    check_weight(weight, weighed, path)
    weight = tf.stop_gradient(tf.cast(weight, tf.float32))
    if weight.shape.rank == weighed.rank:
        return weight
    return tf.reshape(weight, [*dims(weight), *[1] * (weighed.rank - weight.shape.rank)])


def weight_by_row(weight: tf.Tensor, rows: tf.Tensor, path: str) -> tf.Tensor:
    """The weight of every row, float32 of the shape of `rows`.

    Raises:
      ValueError: it does not fit.
    """
    weight = expanded(weight, rows.shape, path)
    is_whole = weight.shape.is_fully_defined() and weight.shape == rows.shape
    return weight if is_whole else tf.broadcast_to(weight, dims(rows))


def total_weight(weight: tf.Tensor, weighed: tf.Tensor) -> tf.Tensor:
    """The sum of the weights of all elements of `weighed`; `weight` is what `expanded` returned."""
    num_below = tf.cast(tf.size(weighed), tf.float32) / tf.cast(tf.size(weight), tf.float32)
    return tf.reduce_sum(weight) * num_below
