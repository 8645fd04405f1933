"""Deck: from the number of a batch to its examples, by arithmetic alone.

The obvious way, drawing a language for every example and the next example of that language, has a state: how far each language has
come. Drawing the example at random too needs none, but after as many draws as there are examples a third was never seen. Here all
that is drawn in a while is laid out as a deck of cards, and the deck is shuffled by a stateless permutation: card 17 of Welsh in deck 3
is example 17 + 3 * quota of the stream of Welsh, and this stream goes through a new permutation of the Welsh examples in each of its
epochs. So languages come in their exact proportions, in the sum of decks no example of a language comes twice before all have come, and any
batch can be made without those before.

With buckets of lengths, a cell is a language in a bucket; each bucket has cards of its own, and the deck is one of batches.

    batch 5 of the run   -> deck 0, slot 5 -> shuffled: batch 2 of the deck
    batches of the deck     | bucket 16: 0 1 2 | bucket 32: 3 4 |         so it is rank 2 of bucket 16
    cards of bucket 16      | de: 0 1 2 3 4 5 6 7 | cy: 8 9 10 11 |       4 a batch: slots 8 to 11, shuffled: 3 9 0 6
    examples                | de 3, cy 1, de 0, de 6 of their streams
"""
from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from lingpipe.tasks.translation.temperature import apportioned

MIN_CARDS = 1 << 16   # unless all languages are as in the data: with fewer, small shares could not be told apart


class Batch(NamedTuple):
    """The examples of a batch.

    Attributes:
      bucket: int64 [].
      cell: int64 [B], in the order of buckets, then languages.
      index: int64 [B], of the example in its cell.
      is_real: bool [B]; False for padding.
    """
    bucket: tf.Tensor
    cell: tf.Tensor
    index: tf.Tensor
    is_real: tf.Tensor


class Deck:
    """The order of batches.

    Attributes:
      quotas: cards of each cell in a deck: int64 [U, L].
      num_batches: in a deck.
    """

    def __init__(self, sizes: np.ndarray, shares: np.ndarray | None, batch_sizes: tuple[int, ...], seed: int, is_shuffled: bool):
        """
        Args:
          sizes: examples in each cell: int [U, L], buckets by languages.
          shares: of each language: float [L]; None: every example once in a deck, and the last batch of each bucket is padded.
          batch_sizes: of each bucket.
          seed: of all permutations.
          is_shuffled: whether there are any.
        """
        self._sizes, self._seed, self._is_shuffled = sizes.reshape(-1).astype(np.int64), seed, is_shuffled
        self._batch_sizes = np.array(batch_sizes, np.int64)
        if shares is None:
            self.quotas = sizes.astype(np.int64)
        else:
            self.quotas = _quotas(sizes, shares, self._batch_sizes)
        cards = self.quotas.sum(axis=1)  # [U]
        batches = -(-cards // self._batch_sizes)
        self._first_batch, self._first_card = _starts(batches), _starts(self.quotas.reshape(-1))
        self._first_of_bucket, self.num_batches = _starts(cards), int(batches.sum())

    def batch(self, number: tf.Tensor) -> Batch:
        """The batch of a number, int64 [], from 0 on, in a graph; B is that of its bucket."""
        deck, slot = number // self.num_batches, number % self.num_batches
        slot = self._shuffled(slot, self.num_batches, deck, 'batches')
        bucket = _last_at_most(self._first_batch, slot)
        rank = slot - tf.gather(self._first_batch, bucket)
        size, first = tf.gather(self._batch_sizes, bucket), tf.gather(self._first_of_bucket, bucket)
        num_cards = tf.gather(self._first_of_bucket, bucket + 1) - first
        places = rank * size + tf.range(size, dtype=tf.int64)  # [B]
        is_real = places < num_cards
        cards = first + self._shuffled(tf.minimum(places, num_cards - 1), num_cards, deck, 'cards', bucket)
        cell = _last_at_most(self._first_card, cards)
        in_stream = deck * tf.gather(self.quotas.reshape(-1), cell) + cards - tf.gather(self._first_card, cell)
        num_examples = tf.gather(self._sizes, cell)
        epoch, index = in_stream // num_examples, in_stream % num_examples
        return Batch(bucket, cell, self._shuffled(index, num_examples, epoch, 'examples', cell), is_real)

    def _shuffled(self, index: tf.Tensor, number: tf.Tensor | int, repetition: tf.Tensor, purpose: str,
                  which: tf.Tensor | int = 0) -> tf.Tensor:
        """The place of each index, int64 [] or [n], in a permutation of `number`; another one for each repetition, purpose and which."""
        if not self._is_shuffled:
            return index
        key = tf.constant(zlib.crc32(f'{self._seed}/{purpose}'.encode()), tf.int64)
        ones = tf.ones_like(index)
        seeds = tf.stack([key * ones, repetition * ones, tf.cast(which, tf.int64) * ones], axis=-1)  # [n, 3]
        return tf.raw_ops.RandomIndexShuffle(index=index, seed=seeds, max_index=tf.cast(number, tf.int64) * ones - 1, rounds=4)


def _quotas(sizes: np.ndarray, shares: np.ndarray, batch_sizes: np.ndarray) -> np.ndarray:
    """Cards of each cell, int64 [U, L]: the sum of a bucket is a multiple of its batch size, and no cell with examples has none."""
    of_language = sizes.sum(axis=0)
    total = int(of_language.sum())
    wanted = sizes * (shares / np.maximum(of_language, 1))  # [U, L], with sum 1
    if not np.allclose(shares * total, of_language):
        total = max(total, MIN_CARDS)
    quotas = np.zeros(sizes.shape, np.int64)
    for u, size in enumerate(batch_sizes):
        num_cells = int((wanted[u] > 0).sum())
        if num_cells:
            num_batches = max(round(wanted[u].sum() * total / size), -(-num_cells // int(size)))
            quotas[u] = apportioned(wanted[u], num_batches * int(size))
    return quotas


def _starts(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _last_at_most(starts: np.ndarray, values: tf.Tensor) -> tf.Tensor:
    """The place of the last start that is not above each value; of empty parts none is found."""
    found = tf.searchsorted(tf.constant(starts), tf.reshape(values, [-1]), side='right', out_type=tf.int64) - 1
    return tf.reshape(found, tf.shape(values))
