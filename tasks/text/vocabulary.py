"""The vocabulary of a language model: pieces that spell a text exactly, its line breaks too.

The class is that of translation. Sentencepiece usually folds characters and joins spaces; here
nothing is changed, so that a text is spelt byte by byte and bits per byte mean what they say. Only
U+2581, which is sentencepiece's sign for a space, is read as a space.
"""
from __future__ import annotations

import io
from collections.abc import Iterable

import numpy as np

from lingpipe.tasks.translation.corpus.vocabulary import (
    END,
    NUM_BYTES,
    PAD,
    START,
    UNKNOWN,
    Vocabulary,
    sentencepiece_module,
)

__all__ = ['END', 'PAD', 'START', 'Vocabulary', 'bytes_of_ids', 'train_vocabulary']

_MOST_CHARACTERS = 1000   # of a part of a line: at most 4,000 bytes of UTF-8


def train_vocabulary(lines: Iterable[str], size: int) -> Vocabulary:
    """Trains byte pairs (BPE) on lines, which keep their line breaks.

    Raises:
      ValueError: the size does not fit the lines, or sentencepiece is missing.
    """
    model = io.BytesIO()
    # sentencepiece leaves out lines of more than 4,192 bytes, and hides what an iterator raises.
    parts = [line[begin:begin + _MOST_CHARACTERS]
             for line in lines for begin in range(0, len(line), _MOST_CHARACTERS)]
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
    return Vocabulary('the new vocabulary', model.getvalue())


def bytes_of_ids(vocabulary: Vocabulary) -> np.ndarray:
    """How many bytes of UTF-8 each id spells, int64 [V]; control ids spell none."""
    is_byte = vocabulary.is_byte
    sizes = [1 if is_byte[i] else len(piece.replace('\u2581', ' ').encode())
             for i, piece in enumerate(vocabulary.pieces)]
    return np.array([0 if i < UNKNOWN else size for i, size in enumerate(sizes)])
