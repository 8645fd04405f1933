"""TranslationInput: reads sentences of many languages and their English from a prepared corpus.

    B batch, S source, T English; here S = T, the length of the bucket

lingpipe.tools.build_corpus prepares the corpus. The sentences are stored as ids, so a batch is a
few NumPy gathers from files that are mapped into memory.
"""
from __future__ import annotations

import functools
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.input import Input
from lingpipe.input.dataset import traceable
from lingpipe.process.fresh_tensor import fresh_int64
from lingpipe.tasks.translation import temperature
from lingpipe.tasks.translation.corpus.prepared import PreparedCorpus
from lingpipe.tasks.translation.corpus.vocabulary import END, PAD, START, Vocabulary
from lingpipe.tasks.translation.deck import Deck
from lingpipe.wording.counts import counted

_ENDLESS = 1 << 62   # batches


class TranslationInput(Input):
    """Makes batches of pairs, each from one length bucket, with languages drawn by temperature.

        source     int32 [B, S]     the sentence, its end, padding
        target     int32 [B, T]     start, the English, padding: what a decoder reads
        label      int32 [B, T]     the English, its end, padding: what it predicts
        weight     float32 [B, T]   1 where there is a label; 0 on padding, and for examples that
                                    fill up the last batch
        language   int32 [B]        number in `corpus.codes`
        index      int64 [B]        row of the split, see PreparedCorpus.texts; -1 for examples
                                    that fill up

    With several buckets, the bucket of length n has batch_size * (longest // n) examples, so that
    all have about as many tokens. A batch moves the position on by batch_size, whatever its bucket.
    Training uses the defaults and a temperature; evaluation uses shuffle=False and num_epochs=1.
    """

    class Params(Input.Params):
        """Chooses the pairs, how they are drawn, and the buckets."""
        batch_size: int = field(
            REQUIRED, 'Examples in a mini-batch of the longest bucket; shorter ones have a '
                      'multiple of it.', least=1)
        directory: str = field(REQUIRED, 'The prepared corpus.')
        split: Literal['train', 'test'] = field('train', 'The part that is read.')
        languages: tuple[str, ...] = field((), 'Codes of those that are used; empty: all.')
        level: Literal['all', 'high', 'middle', 'low'] = field(
            'all', 'The third of the languages that is used, by their pairs for training.')
        temperature: float = field(
            1., 'T of p_l = (n_l / sum n)^(1 / T): 1 as in the data, 5 as the paper, inf all '
                'alike.', least=1, is_finite=False)
        bucket_lengths: tuple[int, ...] = field(
            (64,), 'Ids of a sentence, start or end included, in each bucket, ascending.', least=2)
        overlong: Literal['drop', 'cut'] = field(
            'drop', 'What becomes of pairs that are longer than the longest bucket.')
        language_tags: bool = field(
            False, "Whether a source begins with its language's tag; the vocabulary must have "
                   "them.")
        examples_per_language: int | None = field(
            None, 'At most so many pairs of each, evenly taken; none: all.', least=1)

        def check(self) -> None:
            """Raises ValueError for buckets that do not ascend, or a temperature with epochs."""
            super().check()
            lengths = self.bucket_lengths
            if not lengths or any(a >= b for a, b in zip(lengths, lengths[1:], strict=False)):
                raise ValueError(f'bucket_lengths={list(lengths)} are no ascending lengths; use '
                                 'for example [16, 32, 64]')
            if self.num_epochs is not None and self.temperature != 1:
                raise ValueError(f'num_epochs={self.num_epochs} with '
                                 f'temperature={self.temperature}: in an epoch every pair comes '
                                 'once; set temperature=1, or num_epochs=none')

    params: Params

    # What every input answers.

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The batch size B of each bucket."""
        lengths = self.params.bucket_lengths
        return tuple(self.params.batch_size * (lengths[-1] // length) for length in lengths)

    def specs(self) -> list[dict[str, tf.TensorSpec]]:
        """Returns the specs of a batch of each bucket, the longest first; it reads no file."""
        return [
            {'source': tf.TensorSpec([b, n], tf.int32), 'target': tf.TensorSpec([b, n], tf.int32),
             'label': tf.TensorSpec([b, n], tf.int32), 'weight': tf.TensorSpec([b, n], tf.float32),
             'language': tf.TensorSpec([b], tf.int32), 'index': tf.TensorSpec([b], tf.int64)}
            for b, n in reversed(
                list(zip(self.batch_sizes, self.params.bucket_lengths, strict=True)))]

    def spec(self) -> dict[str, Any]:
        """Returns the spec of a batch of the longest bucket."""
        return self.specs()[0]

    def num_examples(self) -> int:
        """Returns the number of pairs that are used."""
        return int(self._suits.sizes.sum())

    def num_real_examples(self, position: int) -> int:
        """Returns how many pairs the batch at a position has; copies of the last one fill it up."""
        batch = self._deck.batch(fresh_int64(self._batch_number(position)))
        return int(tf.math.count_nonzero(batch.is_real))

    def num_batches(self, position: int = 0) -> int | None:
        """Returns how many batches `dataset(position)` has; None if it has no end."""
        if self.params.num_epochs is None:
            return None
        return max(0, self.params.num_epochs * self._deck.num_batches
                   - self._batch_number(position))

    @functools.cached_property
    def corpus(self) -> PreparedCorpus:
        """The prepared corpus."""
        return PreparedCorpus(self.params.directory)

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the corpus, which turns ids into sentences."""
        return Vocabulary(self.corpus.vocabulary_path)

    def dataset(self, position: int = 0) -> tf.data.Dataset:
        """Returns the batches from `position` on, which is batch_size * the batches before.

        Raises:
          ValueError: the position is between two batches, or there is no corpus, or it has no ids
            or no pairs.
        """
        p, number, deck = self.params, self._batch_number(position), self._deck
        end = _ENDLESS if p.num_epochs is None else p.num_epochs * deck.num_batches
        spec = self.spec()
        is_static = len(p.bucket_lengths) == 1

        def made(number: tf.Tensor) -> dict[str, tf.Tensor]:
            """Makes the batch of a number, with its shapes as far as they are known."""
            values = tf.numpy_function(self._rows, list(deck.batch(number)),
                                       [one.dtype for one in spec.values()], stateful=False)
            batch = dict(zip(spec, values, strict=True))
            return {name: tf.ensure_shape(
                        value, spec[name].shape if is_static else [None] * spec[name].shape.rank)
                    for name, value in batch.items()}

        return self.fetch_ahead(tf.data.Dataset.range(number, end).map(
            traceable(made), p.num_parallel_calls or tf.data.AUTOTUNE, deterministic=True))

    def statistics(self) -> dict[str, Any]:
        """Returns what is used, by arithmetic alone.

        That is the number of pairs, of those longer than the longest bucket, and for every bucket
        its pairs, batch size, share of the batches, and the share of its source and target ids that
        is padding, as languages are drawn.
        """
        p, suits, quotas = self.params, self._suits, self._deck.quotas
        with np.errstate(invalid='ignore', divide='ignore'):
            means = np.nan_to_num(suits.lengths / suits.sizes)  # [2, U, L]: ids of a pair
        cards = quotas.sum(axis=1)
        real = (means * quotas).sum(axis=2)  # [2, U]
        # [U]: the ids, padding included.
        slots = -(-cards // np.array(self.batch_sizes)) * self.batch_sizes * p.bucket_lengths

        buckets = [{'length': n, 'batch_size': b, 'pairs': int(suits.sizes[u].sum()),
                    'batches_share': -(-int(cards[u]) // b) / self._deck.num_batches,
                    'source_padding': float(1 - real[0, u] / max(1, slots[u])),
                    'target_padding': float(1 - real[1, u] / max(1, slots[u]))}
                   for u, (n, b) in enumerate(zip(p.bucket_lengths, self.batch_sizes, strict=True))]
        return {'pairs': self.num_examples(), 'overlong': suits.num_overlong,
                'batches_a_pass': self._deck.num_batches,
                'padding': float(1 - real.sum() / (2 * slots.sum())), 'buckets': buckets}

    def statistics_text(self) -> str:
        """Returns the statistics in one line."""
        s, p = self.statistics(), self.params
        buckets = '; '.join(f'{b["batch_size"]} x {b["length"]}: {counted(b["pairs"], "pair")}, '
                            f'{b["batches_share"]:.0%} of batches' for b in s['buckets'])
        done = 'dropped' if p.overlong == 'drop' else 'cut'
        return (f'{p.split} of {p.directory}: {counted(s["pairs"], "pair")}, {s["overlong"]:,} '
                f'longer than {p.bucket_lengths[-1]} {done}; {s["padding"]:.0%} padding; {buckets}')

    # How a batch is made.

    def _batch_number(self, position: int) -> int:
        if position < 0 or position % self.params.batch_size:
            raise ValueError(f'position={position} is not between two batches of '
                             f'batch_size={self.params.batch_size}; it is batch_size times the '
                             'number of batches before.')
        return position // self.params.batch_size

    def _rows(self, bucket: np.ndarray, suit: np.ndarray, index: np.ndarray,
              is_real: np.ndarray) -> list[np.ndarray]:
        """Returns the arrays of a batch, in the order of spec()."""
        suits, length = self._suits, self.params.bucket_lengths[int(bucket)]
        rows = suits.rows[suits.starts[suit] + index]
        language = (suit % suits.sizes.shape[1]).astype(np.int32)

        tags = (self._tags[language][:, np.newaxis] if self.params.language_tags
                else np.zeros([len(rows), 0], np.int32))
        source = np.concatenate(
            [tags, _padded(self._ids['source'], rows, length - tags.shape[1], END)], axis=1)

        label = _padded(self._ids['english'], rows, length, END)
        target = np.concatenate([np.full([len(rows), 1], START, np.int32),
                                 np.where(label[:, :-1] == END, PAD, label[:, :-1])], axis=1)
        weight = ((label != PAD) & is_real[:, np.newaxis]).astype(np.float32)
        return [source, target, label, weight, language, np.where(is_real, rows, -1)]

    @functools.cached_property
    def _ids(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        return {side: self.corpus.ids(self.params.split, side) for side in ('source', 'english')}

    @functools.cached_property
    def _tags(self) -> np.ndarray:
        return np.array([self.vocabulary.tag(code) for code in self.corpus.codes], np.int32)

    @functools.cached_property
    def _suits(self) -> _Suits:
        """The pairs that suit the Params, with their lengths; raises ValueError if none is left."""
        p = self.params
        if p.language_tags:
            _ = self._tags   # a vocabulary without tags is refused now

        starts = self.corpus.rows(p.split)
        chosen = []
        for i in self.corpus.select(p.languages, p.level):
            rows = np.arange(starts[i], starts[i + 1])
            most = p.examples_per_language
            chosen.append(rows if most is None or len(rows) <= most
                          else rows[np.arange(most) * len(rows) // most])

        rows = np.concatenate(chosen)
        suits = _Suits(rows, np.searchsorted(starts, rows, 'right') - 1,
                       [np.diff(self._ids[side][1])[rows] for side in self._ids],
                       int(p.language_tags), p.bucket_lengths, p.overlong == 'cut',
                       len(self.corpus.languages))
        if not len(suits.rows):
            raise ValueError(f'no pair of {p.split} is left in {p.directory}: {len(rows):,} are '
                             f'there, {suits.num_overlong:,} of them longer than '
                             f'{p.bucket_lengths[-1]} ids; choose other languages, a longer '
                             'bucket, or overlong=cut.')
        return suits

    @functools.cached_property
    def _deck(self) -> Deck:
        p, sizes = self.params, self._suits.sizes
        shares = (temperature.shares(sizes.sum(axis=0), p.temperature)
                  if p.num_epochs is None else None)
        return Deck(sizes, shares, self.batch_sizes, p.seed, p.shuffle,
                    p.shuffle_rounds)


class _Suits:
    """The pairs that are used, by bucket, then language.

    Attributes:
      rows: the rows of the split, suit after suit: int64 [n].
      starts: where each suit begins in rows: int64 [U * L + 1].
      sizes: the number of pairs of each suit: int64 [U, L].
      lengths: the number of ids of sources and of labels in each suit: int64 [2, U, L].
      num_overlong: the number of pairs that are longer than the longest bucket.
    """

    def __init__(self, rows: np.ndarray, language: np.ndarray, num_ids: list[np.ndarray],
                 num_tags: int, bucket_lengths: tuple[int, ...], is_cut: bool, num_languages: int):
        shape = (len(bucket_lengths), num_languages)
        longest = bucket_lengths[-1]
        source, english = num_ids[0] + 1 + num_tags, num_ids[1] + 1
        # Each pair goes into the first bucket that is long enough.
        bucket = np.searchsorted(bucket_lengths, np.maximum(source, english))
        is_overlong = bucket == len(bucket_lengths)
        self.num_overlong = int(is_overlong.sum())
        is_used = np.ones_like(is_overlong) if is_cut else ~is_overlong

        suit = (np.minimum(bucket, len(bucket_lengths) - 1) * num_languages + language)[is_used]
        order = np.argsort(suit, kind='stable')
        self.rows = rows[is_used][order]
        self.sizes = np.bincount(suit, minlength=shape[0] * shape[1]).reshape(shape)
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)])
        self.lengths = np.stack([
            np.bincount(suit, np.minimum(one, longest)[is_used], shape[0] * shape[1]).reshape(shape)
            for one in (source, english)])


def _padded(ids: tuple[np.ndarray, np.ndarray], rows: np.ndarray, length: int,
            end: int) -> np.ndarray:
    """Returns the ids of rows, cut to length - 1, with `end` and padding: int32 [B, length]."""
    flat, starts = ids
    first = starts[rows][:, np.newaxis]
    size = np.minimum(starts[rows + 1][:, np.newaxis] - first, length - 1)
    place = np.arange(length)[np.newaxis]
    gathered = flat[np.minimum(first + place, len(flat) - 1)].astype(np.int32)  # [B, length]
    return np.where(place < size, gathered, np.where(place == size, end, PAD)).astype(np.int32)
