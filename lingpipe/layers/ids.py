"""Ids: numbers of classes and tokens, of whatever type the data has them in."""
from __future__ import annotations

import tensorflow as tf


def check_ids(ids: tf.Tensor | tf.TensorSpec, path: str, what: str) -> None:
    """Raises ValueError unless ids can be numbers of classes or tokens."""
    if not (ids.dtype.is_integer or ids.dtype.is_floating or ids.dtype.is_bool):
        raise ValueError(f'{path}: {what} is of {ids.dtype.name}, but must be whole numbers '
                         'counted from 0; make numbers of them in the input (load, decode or '
                         'preprocess).')


def ids_below(ids: tf.Tensor, num_ids: int) -> tf.Tensor:
    """The ids as int32, with -1 for everything but whole numbers from 0 to num_ids - 1."""
    if ids.dtype.is_floating:
        is_id = (ids >= 0) & (ids < num_ids) & (tf.floor(ids) == ids)
        return tf.where(is_id, tf.cast(tf.where(is_id, ids, 0), tf.int32), -1)
    # The wide type holds num_ids. A uint64 that int64 cannot hold becomes negative.
    wide = tf.cast(ids, tf.int64 if ids.dtype in (tf.int64, tf.uint32, tf.uint64) else tf.int32)
    return tf.cast(tf.where((wide >= 0) & (wide < num_ids), wide, -1), tf.int32)


def as_indices(ids: tf.Tensor) -> tf.Tensor:
    """The ids in a type that tf.gather takes: int32 or int64."""
    if ids.dtype in (tf.int32, tf.int64):
        return ids
    return tf.cast(ids, tf.int64 if ids.dtype.size > 2 else tf.int32)
