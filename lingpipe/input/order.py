"""Order: from the position of an example in training to the example, by arithmetic alone.

    position            0 1 2 3 4 5 6 7 8 ...     examples consumed before
    epoch               0 0 0 0 1 1 1 1 2 ...     of 4 examples
    index, shuffled     2 0 3 1 0 3 2 1 1 ...     another permutation in each epoch

An epoch may end in the middle of a batch: no example is dropped, and none comes twice in an epoch.
"""
from __future__ import annotations

import zlib

import tensorflow as tf


def indices(positions: tf.Tensor, num_examples: int, seed: int,
            is_shuffled: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """(index of the example, epoch) for each position; all int64 [n]."""
    epoch, index = positions // num_examples, positions % num_examples
    if is_shuffled:
        # The op behind tf.random.experimental.index_shuffle. That takes one seed for all, while a
        # batch may span epochs.
        keys = tf.fill(tf.shape(epoch), _key(seed, 'order'))
        index = tf.raw_ops.RandomIndexShuffle(
            index=index, seed=tf.stack([keys, epoch, tf.zeros_like(epoch)], axis=1),
            max_index=tf.constant(num_examples - 1, tf.int64), rounds=4)
    return index, epoch


def example_seeds(index: tf.Tensor, epoch: tf.Tensor, seed: int) -> tf.Tensor:
    """Seeds for tf.random.stateless_*, one for each (seed, epoch, index): int64 [n, 2]."""
    return tf.stack([_key(seed, 'augmentation') + epoch * (1 << 32), index], axis=1)


def _key(seed: int, purpose: str) -> tf.Tensor:
    """32 bits that depend on the seed and on what they are for."""
    return tf.constant(zlib.crc32(f'{seed}/{purpose}'.encode()), tf.int64)
