"""Deck: from the number of a batch to its examples, by arithmetic alone.

The obvious way, drawing a language for every example and then the next example of that language,
has a state: how far each language has come. Drawing the example at random too needs no state, but
after as many draws as there are examples, a third has never been seen. Instead, a number of draws
is laid out as a deck of cards, and the deck is shuffled by a stateless permutation: card 17 of
Welsh in deck 3 is example 17 + 3 * quota of the stream of Welsh, and this stream goes through a new
permutation of the Welsh examples in each of its epochs. So languages come in their exact
proportions, over all decks no example of a language comes twice before all have come, and any batch
can be made without those before.

With buckets of lengths, a suit is a language in a bucket. Each bucket has its own cards, and
the deck consists of batches.

    batch 5 of the run   -> deck 0, slot 5 -> shuffled: batch 2 of the deck
    batches of the deck     | bucket 16: 0 1 2 | bucket 32: 3 4 |    so it is rank 2 of bucket 16
    cards of bucket 16      | de: 0 1 2 3 4 5 6 7 | cy: 8 9 10 11 |  4 a batch: slots 8 to 11,
                                                                     shuffled: 3 9 0 6
    examples                | de 3, cy 1, de 0, de 6 of their streams
"""
from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from lingpipe.input import order
from lingpipe.tasks.translation.temperature import apportioned

# With fewer cards, small shares could not be told apart. It does not matter if all languages come
# as in the data.
MIN_CARDS = 1 << 16

# The batches of the rarest bucket in a deck that is made longer for it: rounding to whole batches
# then changes its share by a sixteenth at most.
_BATCHES_OF_RAREST = 8


class Batch(NamedTuple):
    """The examples of a batch.

    Attributes:
      bucket: the number of the bucket, int64 [].
      suit: the suits, int64 [B], counted by bucket, then language.
      index: the index of each example in its suit, int64 [B].
      is_real: bool [B]; False for padding.
    """
    bucket: tf.Tensor
    suit: tf.Tensor
    index: tf.Tensor
    is_real: tf.Tensor


class Deck:
    """The order of batches.

    Attributes:
      quotas: the number of cards of each suit in a deck: int64 [U, L].
      num_batches: the number of batches in a deck.
    """

    def __init__(self, sizes: np.ndarray, shares: np.ndarray | None, batch_sizes: tuple[int, ...],
                 seed: int, is_shuffled: bool, shuffle_rounds: int):
        """
        Args:
          sizes: the number of examples in each suit: int [U, L], buckets by languages.
          shares: the share of each language: float [L]. None has every example once in a deck, and
            pads the last batch of each bucket.
          batch_sizes: the batch size of each bucket.
          seed: the seed of all permutations.
          is_shuffled: whether anything is permuted.
          shuffle_rounds: as in ExampleSource.Params.
        """
        self._sizes, self._seed, self._is_shuffled = (
            sizes.reshape(-1).astype(np.int64), seed, is_shuffled)
        self._shuffle_rounds = shuffle_rounds
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
        """Returns the batch of a number from 0 on, int64 [], in a graph; B is its bucket's."""
        deck, slot = number // self.num_batches, number % self.num_batches
        slot = self._shuffled(slot, self.num_batches, deck, 'batches')

        bucket = _last_at_most(self._first_batch, slot)
        rank = slot - tf.gather(self._first_batch, bucket)

        size, first = tf.gather(self._batch_sizes, bucket), tf.gather(self._first_of_bucket, bucket)
        num_cards = tf.gather(self._first_of_bucket, bucket + 1) - first
        places = rank * size + tf.range(size, dtype=tf.int64)  # [B]
        is_real = places < num_cards
        cards = first + self._shuffled(tf.minimum(places, num_cards - 1), num_cards, deck, 'cards',
                                       bucket)

        suit = _last_at_most(self._first_card, cards)
        in_stream = (deck * tf.gather(self.quotas.reshape(-1), suit) + cards
                     - tf.gather(self._first_card, suit))
        num_examples = tf.gather(self._sizes, suit)
        epoch, index = in_stream // num_examples, in_stream % num_examples
        return Batch(bucket, suit, self._shuffled(index, num_examples, epoch, 'examples', suit),
                     is_real)

    def _shuffled(self, index: tf.Tensor, number: tf.Tensor | int, repetition: tf.Tensor,
                  purpose: str, which: tf.Tensor | int = 0) -> tf.Tensor:
        """Returns the place of each index, int64 [] or [n], in a permutation of `number`.

        Each purpose and `which` has 256 permutations of its own, which the repetitions take in
        turn. There could be one for each repetition, but resumed runs must keep their order.
        """
        if not self._is_shuffled:
            return index

        flat = tf.reshape(index, [-1])
        ones = tf.ones_like(flat)
        seeds = tf.stack([order.key_of(self._seed, purpose) * ones, repetition * ones,
                          tf.cast(which, tf.int64) * ones], axis=1)
        places = order.shuffled(flat, tf.cast(number, tf.int64) * ones, seeds,
                                self._shuffle_rounds)
        return tf.reshape(places, tf.shape(index))


def _quotas(sizes: np.ndarray, shares: np.ndarray, batch_sizes: np.ndarray) -> np.ndarray:
    """Returns the number of cards of each suit: int64 [U, L].

    The sum of a bucket is a multiple of its batch size, and every suit with examples has a
    card.
    """
    of_language = sizes.sum(axis=0)
    total = int(of_language.sum())
    wanted = sizes * (shares / np.maximum(of_language, 1))  # [U, L], with sum 1
    if not np.allclose(shares * total, of_language):
        total = max(total, MIN_CARDS)
    # Every bucket has at least one batch. If one should have less than half a batch, it would come
    # more than twice as often as it should, so the deck is made longer.
    of_bucket = wanted.sum(axis=1)
    cards_a_batch = np.max(batch_sizes[of_bucket > 0] / of_bucket[of_bucket > 0], initial=0)
    if cards_a_batch > 2 * total:
        total = math.ceil(_BATCHES_OF_RAREST * cards_a_batch)

    quotas = np.zeros(sizes.shape, np.int64)
    for u, size in enumerate(batch_sizes):
        num_suits = int((wanted[u] > 0).sum())
        if num_suits:
            num_batches = max(round(wanted[u].sum() * total / size), -(-num_suits // int(size)))
            quotas[u] = apportioned(wanted[u], num_batches * int(size))
    return quotas


def _starts(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _last_at_most(starts: np.ndarray, values: tf.Tensor) -> tf.Tensor:
    """Returns the place of the last start that is not above each value, which skips empty parts."""
    indices = tf.searchsorted(tf.constant(starts), tf.reshape(values, [-1]), side='right',
                              out_type=tf.int64) - 1
    return tf.reshape(indices, tf.shape(values))
