"""Vocabulary: one for all languages, trained on a sample of sentences by temperature.

It is a model of sentencepiece (Kudo and Richardson, 2018, arXiv:1808.06226). Its first ids are 0
padding, 1 start, 2 end, 3 unknown. Then come the tags of languages, if asked for, and then the 256
bytes, which spell any character that has no piece, so that nothing is unknown.
"""
from __future__ import annotations

import functools
import io
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
from absl import logging

from lingpipe.tasks.translation.corpus.prepared import SIDES, SPLITS, PreparedCorpus
from lingpipe.tasks.translation.temperature import apportioned, shares
from lingpipe.wording.counts import counted

PAD, START, END, UNKNOWN = range(4)
NUM_BYTES = 256
_TAG = re.compile('<([a-z-]+)>')
_CHUNK = 20_000   # sentences that are encoded at a time


class Vocabulary:
    """A sentencepiece model."""

    def __init__(self, path: str, model: bytes = b''):
        """
        Args:
          path: the file of the model; or the name of a given model in errors.
          model: the content of such a file.

        Raises:
          ValueError: sentencepiece or the file is missing, the file is no model, or its control ids
            are others.
        """
        if not model:
            if not os.path.isfile(path):
                raise ValueError(f'{path} is no file; train a vocabulary: python -m '
                                 'lingpipe.tools.train_vocabulary.')
            with open(path, 'rb') as file:
                model = file.read()

        self._model = sentencepiece_module().SentencePieceProcessor()
        try:
            self._model.load_from_serialized_proto(model)
        except RuntimeError as error:
            raise ValueError(f'{path} is no model of sentencepiece; train one by python -m '
                             'lingpipe.tools.train_vocabulary.') from error

        control_ids = (self._model.pad_id(), self._model.bos_id(), self._model.eos_id(),
                       self._model.unk_id())
        if control_ids != (PAD, START, END, UNKNOWN):
            raise ValueError(f'{path} has pad, bos, eos, unk = {control_ids}, and they must be '
                             f'{(PAD, START, END, UNKNOWN)}; train it by python -m '
                             'lingpipe.tools.train_vocabulary.')

    @property
    def size(self) -> int:
        """The number of ids."""
        return int(self._model.vocab_size())

    @property
    def pieces(self) -> list[str]:
        """The text of each id, in which U+2581 stands for a space."""
        return [str(self._model.id_to_piece(i)) for i in range(self.size)]

    @property
    def is_byte(self) -> np.ndarray:
        """Bools [V]: whether each id is a byte."""
        return np.array([self._model.is_byte(i) for i in range(self.size)])

    def save(self, path: str) -> None:
        """Writes the model to a file."""
        with open(path, 'wb') as file:
            file.write(self._model.serialized_model_proto())

    def encode(self, texts: Sequence[str], num_threads: int = 2) -> list[list[int]]:
        """Returns the ids of sentences, without start and end."""
        return self._model.encode(   # type: ignore[no-any-return]
            list(texts), num_threads=num_threads) if texts else []

    def decode(self, ids: Any) -> list[str]:
        """Returns the sentences of rows of ids, up to the first end, without control ids."""
        rows = [[int(i) for i in row] for row in ids]
        rows = [row[:row.index(END)] if END in row else row for row in rows]
        return self._model.decode(   # type: ignore[no-any-return]
            [[i for i in row if i > UNKNOWN] for row in rows])

    @functools.cached_property
    def tags(self) -> dict[str, int]:
        """The ids of language tags by code: the first pieces. A later piece like <br> is no tag."""
        ids_by_language: dict[str, int] = {}
        for i in range(UNKNOWN + 1, self.size):
            tag = _TAG.fullmatch(self._model.id_to_piece(i))
            if not tag:
                break
            ids_by_language[tag[1]] = i
        return ids_by_language

    def tag(self, code: str) -> int:
        """Returns the id of a language's tag.

        Raises:
          ValueError: the language has no tag.
        """
        if code not in self.tags:
            raise ValueError(f'the vocabulary has no tag of the language {code!r}; train it with '
                             '--language_tags, or set language_tags=False.')
        return self.tags[code]


def sample(corpus: PreparedCorpus, num_sentences: int, temperature: float, english_share: float,
           seed: int = 0) -> list[str]:
    """Returns sentences for training a vocabulary, from the training part only.

    Their order depends on the seed alone. What English leaves is shared among the languages by
    temperature (temperature.shares). A language with fewer sentences has each of them once.
    English keeps its share, and repeats if there is too little of it.

    Raises:
      ValueError: the temperature is below 1, the share is outside [0, 1], or there are fewer
        sentences than languages.
    """
    if not temperature >= 1:
        raise ValueError(f'temperature={temperature} is below 1, which would make large languages '
                         'larger; use 1 to inf')
    if not 0 <= english_share <= 1:
        raise ValueError(f'english_share={english_share} is no part of a whole; use 0 to 1')

    rng, rows, sentences = np.random.default_rng(seed), corpus.rows('train'), []
    sizes = np.diff(rows)
    num_english = round(num_sentences * english_share)
    if num_sentences - num_english < np.count_nonzero(sizes):
        raise ValueError(f'{counted(num_sentences, "sentence")}, {num_english} of them English, '
                         f'are too few for {counted(int(np.count_nonzero(sizes)), "language")}; '
                         'take more, or less English')

    quotas = apportioned(shares(sizes, temperature), num_sentences - num_english)
    for i, quota in enumerate(quotas):
        texts = corpus.texts('train', 'source', int(rows[i]), int(rows[i + 1]))
        chosen = rng.permutation(len(texts))[:quota]
        sentences += [texts[j] for j in chosen]

    english = sorted(set(corpus.texts('train', 'english')))
    if english_share < 1:
        num_english = round(len(sentences) * english_share / (1 - english_share))
    repeats = -(-num_english // len(english))
    english = [english[j] for j in rng.permutation(len(english))]
    sentences += (english * repeats)[:num_english]
    return [sentences[i] for i in rng.permutation(len(sentences))]


def train(sentences: Iterable[str], size: int, kind: Literal['unigram', 'bpe'] = 'unigram',
          coverage: float = 0.9995, tags: Iterable[str] = (), num_threads: int = 2) -> Vocabulary:
    """Trains a vocabulary.

    Args:
      sentences: the sentences to train on.
      size: the number of ids, control ids and bytes included.
      kind: the kind of segmentation.
      coverage: the part of all characters that have an id of their own; rarer ones are spelt in
        bytes.
      tags: codes of languages that get an id '<code>'.
      num_threads: the number of threads that train.

    Raises:
      ValueError: the size does not fit the sentences.
    """
    model = io.BytesIO()
    try:
        sentencepiece_module().SentencePieceTrainer.train(
            sentence_iterator=iter(sentences), model_writer=model, vocab_size=size, model_type=kind,
            character_coverage=coverage, byte_fallback=True, pad_id=PAD, bos_id=START, eos_id=END,
            unk_id=UNKNOWN, user_defined_symbols=[f'<{tag}>' for tag in tags],
            num_threads=num_threads, minloglevel=2)
    except (RuntimeError, OSError) as error:
        why = ' '.join(str(error).split())
        raise ValueError(f'sentencepiece makes no vocabulary of size={size} with '
                         f'coverage={coverage}: {why[-200:]} It needs room for {NUM_BYTES} bytes '
                         'and every character that is covered, and as many different pieces: '
                         'change the size, or lower the coverage.') from error
    return Vocabulary('the new vocabulary', model.getvalue())


def encode_corpus(corpus: PreparedCorpus, vocabulary: Vocabulary,
                  progress: Callable[[int], None] = lambda n: None) -> dict[str, Any]:
    """Writes the ids of all sentences, then the vocabulary, and returns statistics.

    progress(n) is called after every n sentences.

    Returns:
      vocab_size, and by side the numbers of sentences and ids, the share of ids that are bytes, and
      the 50th, 90th and 99th percentile and the maximum of ids a sentence.
    """
    statistics: dict[str, Any] = {'vocab_size': vocabulary.size}
    is_byte = vocabulary.is_byte
    corpus.forget_ids()
    for side in SIDES:
        lengths, num_bytes, num_unknown = [np.zeros([0], np.int64)], 0, 0
        for split in SPLITS:
            texts, ids = corpus.texts(split, side), []
            for first in range(0, len(texts), _CHUNK):
                some = [np.array(row, np.int64)
                        for row in vocabulary.encode(texts[first:first + _CHUNK])]
                num_bytes += sum(int(is_byte[row].sum()) for row in some)
                num_unknown += sum(int(np.count_nonzero(row == UNKNOWN)) for row in some)
                ids += some
                progress(len(some))

            corpus.write_ids(split, side, ids, vocabulary.size)
            lengths.append(np.array([len(row) for row in ids], np.int64))

        flat = np.concatenate(lengths)
        warn_of_unknown(f'the {side} sentences', num_unknown, int(flat.sum()))
        statistics[side] = {'sentences': len(flat), 'ids': int(flat.sum()),
                            'bytes_share': num_bytes / max(1, int(flat.sum())),
                            **{f'p{q}': int(np.percentile(flat, q)) for q in (50, 90, 99)},
                            'max': int(flat.max())}

    # The vocabulary is written last: if it is there, the ids are complete and belong to it.
    vocabulary.save(corpus.vocabulary_path)
    return statistics


def warn_of_unknown(whose: str, num_unknown: int, num_ids: int) -> None:
    """Warns of text that a vocabulary cannot spell, of which nothing is left but an unknown id."""
    if num_unknown:
        logging.warning('%s of %s ids of %s are unknown: characters that the vocabulary has no '
                        'piece for are lost; train it with byte_fallback, which spells them in '
                        'bytes', f'{num_unknown:,}', f'{num_ids:,}', whose)


@functools.cache
def sentencepiece_module() -> Any:
    """Imports sentencepiece. Raises ValueError, with the remedy, if it is not installed."""
    try:
        import sentencepiece
    except ImportError as error:
        raise ValueError("a vocabulary needs sentencepiece: pip install -e '.[translation]' "
                         f"({error}).") from error
    return sentencepiece
