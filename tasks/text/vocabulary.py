"""The vocabulary of a language model: what makes ids of texts, and texts of ids.

There are two kinds, and everything else knows only what they have in common, `Vocabulary`:
`Pieces`, a model of sentencepiece, and `Tokenizer` (tokenizer.py), that of a folder of Hugging
Face.

`Pieces` is the class of translation. Sentencepiece usually folds characters and joins spaces; one
that is trained here changes nothing, so that a text is spelt byte by byte and bits per byte mean
what they say. Only U+2581, which is sentencepiece's sign for a space, is read as a space.
"""
from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from lingpipe.tasks.text.chat import ChatTemplate
from lingpipe.tasks.text.tokenizer import Tokenizer
from lingpipe.tasks.translation.corpus.vocabulary import (
    END,
    NUM_BYTES,
    PAD,
    START,
    UNKNOWN,
    sentencepiece_module,
)
from lingpipe.tasks.translation.corpus.vocabulary import Vocabulary as SharedVocabulary

__all__ = ['END', 'PAD', 'START', 'Pieces', 'Vocabulary', 'check_is_file', 'open_vocabulary',
           'train_vocabulary']

_MOST_CHARACTERS = 1000   # of a part of a line: at most 4,000 bytes of UTF-8


class Vocabulary(Protocol):
    """What a language model's vocabulary is asked for.

    Attributes:
      file_name: what its file is called in a directory of tokens.
      facts: what the facts of tokens say of it besides, to open it again: `vocabulary_file`, if
        that is not vocabulary.model, `ends` and `chat_template` (see open_vocabulary).
      before: the ids before a text: the start, or none.
      ends: the ids that end a text that is written; documents end with the first.
      unknown: the id of text that has no other; -1: there is none.
      chat_template: what makes texts of conversations; None: nothing does.
    """
    file_name: str
    facts: Mapping[str, Any]
    before: tuple[int, ...]
    ends: tuple[int, ...]
    unknown: int
    chat_template: ChatTemplate | None

    @property
    def size(self) -> int:
        """The largest id, and 1."""

    def fits(self, vocab_size: int) -> bool:
        """Whether a network with so many ids can be trained with it."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of texts, without the start and the end."""

    def decode(self, ids: Any) -> list[str]:
        """Returns the texts of rows of ids, without control ids."""

    def bytes_of_ids(self) -> np.ndarray:
        """How many bytes of UTF-8 each id spells, int64 [V]; start and end spell none."""

    def save(self, path: str) -> None:
        """Writes the file."""


class Pieces(SharedVocabulary):
    """A model of sentencepiece."""
    file_name = 'vocabulary.model'
    facts: Mapping[str, Any] = {}
    before: tuple[int, ...] = (START,)
    ends: tuple[int, ...] = (END,)
    unknown = UNKNOWN
    chat_template: ChatTemplate | None = None

    def fits(self, vocab_size: int) -> bool:
        """Whether the network has the same ids."""
        return self.size == vocab_size

    def bytes_of_ids(self) -> np.ndarray:
        """How many bytes of UTF-8 each id spells, int64 [V]; control ids spell none."""
        is_byte = self.is_byte
        sizes = [1 if is_byte[i] else len(piece.replace('\u2581', ' ').encode())
                 for i, piece in enumerate(self.pieces)]
        return np.array([0 if i < UNKNOWN else size for i, size in enumerate(sizes)])


def check_is_file(path: str) -> None:
    """Raises ValueError unless the path of a vocabulary is that of a file."""
    if os.path.isdir(path):
        raise ValueError(f'{path} is a folder, and a vocabulary is a file; name the one in it, '
                         'such as tokenizer.json.')
    if not os.path.exists(path):
        raise ValueError(f'{path} is no file; name the vocabulary where it is: a tokenizer.json, '
                         'or a model, which lingpipe.tools.train_vocabulary makes.')


def open_vocabulary(path: str, facts: Mapping[str, Any]) -> Vocabulary:
    """Opens a vocabulary: *.json is a tokenizer of Hugging Face, any other a model.

    Args:
      path: its file.
      facts: may have `ends`, those of a Tokenizer; without them, the files beside it say so. May
        have `chat_template`, the facts of one, if there is none beside it.

    Raises:
      ValueError: what reads it or the file is missing, or the file is damaged.
    """
    check_is_file(path)
    if path.endswith('.json'):
        return Tokenizer(path, facts.get('ends', ()), facts.get('chat_template'))
    return Pieces(path)


def train_vocabulary(lines: Iterable[str], size: int) -> Pieces:
    """Trains byte pairs (BPE) on lines, which keep their line breaks.

    Raises:
      ValueError: there are no lines, the size does not fit them, or sentencepiece is missing.
    """
    model = io.BytesIO()
    # sentencepiece leaves out lines of more than 4,192 bytes, and hides what an iterator raises.
    parts = [line[begin:begin + _MOST_CHARACTERS]
             for line in lines for begin in range(0, len(line), _MOST_CHARACTERS)]
    if not parts:
        raise ValueError('the documents for training hold no text, on which a vocabulary is '
                         'trained; name other files, lower test_share, or name a vocabulary.')
    try:
        sentencepiece_module().SentencePieceTrainer.train(
            sentence_iterator=iter(parts), model_writer=model, vocab_size=size,
            model_type='bpe', character_coverage=0.9995, byte_fallback=True, pad_id=PAD,
            bos_id=START, eos_id=END, unk_id=UNKNOWN, normalization_rule_name='identity',
            remove_extra_whitespaces=False, add_dummy_prefix=False,
            allow_whitespace_only_pieces=True, num_threads=2, minloglevel=2)
    except (RuntimeError, OSError) as error:
        why = ' '.join(str(error).split())
        raise ValueError(f'sentencepiece makes no vocabulary of vocab_size={size}: {why[-200:]} It '
                         f'needs room for {NUM_BYTES} bytes, all usual characters, and as many '
                         'different pieces; change vocab_size, of the inputs and the model alike, '
                         'or give it more text.') from error
    return Pieces('the new vocabulary', model.getvalue())
