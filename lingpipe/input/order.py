"""Order: from the position of an example in training to the example, by arithmetic alone.

    position            0 1 2 3 4 5 6 7 8 ...     examples consumed before
    epoch               0 0 0 0 1 1 1 1 2 ...     of 4 examples
    index, shuffled     2 0 3 1 0 3 2 1 1 ...     another permutation in each epoch

An epoch may end in the middle of a batch: no example is dropped, and none comes twice in an epoch.

A permutation is a cipher of some rounds (Simon, by tf.raw_ops.RandomIndexShuffle). With 4, which is
TensorFlow's default, it is no random one: of 60,000 examples in mini-batches of 100, two that are
together in one epoch are together in the next 128 times as often as by chance. With 12 or more no
difference from chance was measured, for 64 to 10,000,000 examples. 16 take 0.02 us an example more
than 4.
"""
from __future__ import annotations

import zlib

import tensorflow as tf


def indices(positions: tf.Tensor, num_examples: int, seed: int, is_shuffled: bool,
            rounds: int) -> tuple[tf.Tensor, tf.Tensor]:
    """(index of the example, epoch) for each position; all int64 [n].

    `rounds` is ExampleSource.Params.shuffle_rounds.
    """
    epoch, index = positions // num_examples, positions % num_examples
    if is_shuffled:
        # The op uses only the last bits of each word, 8 of them for up to 65,536 examples. So the
        # third word holds the further bits of the epoch.
        keys = tf.fill(tf.shape(epoch), key_of(seed, 'order'))
        index = shuffled(index, tf.fill(tf.shape(index), tf.constant(num_examples, tf.int64)),
                         tf.stack([keys, epoch, epoch // 256], axis=1), rounds)
    return index, epoch


def shuffled(index: tf.Tensor, number: tf.Tensor, seeds: tf.Tensor, rounds: int) -> tf.Tensor:
    """Returns the place of each index in a permutation of 0 to number - 1: int64 [n].

    Args:
      index: int64 [n], each below its number.
      number: int64 [n].
      seeds: int64 [n, 3]; each row has a permutation of its own.
      rounds: of the cipher, an even number from 4 on.
    """
    # If the last index is 4^k, the op may give two indices the same place. So one more index is
    # permuted; the index that gets its place takes the place that it got.
    last = number - 1
    last += tf.cast(tf.reduce_any(last[:, tf.newaxis] == _POWERS_OF_4, axis=1), tf.int64)
    places = _permuted(index, seeds, last, rounds)
    return tf.where(places < number, places, _permuted(last, seeds, last, rounds))


_POWERS_OF_4 = [1 << bits for bits in range(16, 63, 2)]


def _permuted(index: tf.Tensor, seeds: tf.Tensor, last: tf.Tensor, rounds: int) -> tf.Tensor:
    # The op behind tf.random.experimental.index_shuffle. That takes one seed for all, while a batch
    # may span epochs.
    return tf.raw_ops.RandomIndexShuffle(index=index, seed=seeds, max_index=last, rounds=rounds)


def example_seeds(index: tf.Tensor, epoch: tf.Tensor, seed: int) -> tf.Tensor:
    """Seeds for tf.random.stateless_*, one for each (seed, epoch, index): int64 [n, 2]."""
    return tf.stack([key_of(seed, 'augmentation') + epoch * (1 << 32), index], axis=1)


def key_of(seed: int, purpose: str) -> tf.Tensor:
    """32 bits that depend on the seed and on what they are for."""
    return tf.constant(zlib.crc32(f'{seed}/{purpose}'.encode()), tf.int64)
