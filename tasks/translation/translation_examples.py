"""Translation examples: pairs of sentences as arrays that a model of Hugging Face trains on."""
from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from absl import logging

from lingpipe.tasks.translation.tokenizer import open_tokenizer
from lingpipe.wording.counts import are, counted
from lingpipe.wording.values import show


def translation_examples(vocabulary: str, pairs: Iterable[tuple[str, str]], source_language: str,
                         target_language: str, length: int) -> dict[str, np.ndarray]:
    """Returns examples for ArrayInput, one a pair, as transformers makes them with `text_target`.

        source    int32 [N, T]     language, sentence, end: what the encoder reads
        target    int32 [N, T]     end, language, translation: what the decoder reads
        label     int32 [N, T]     language, translation, end: what it predicts
        weight    float32 [N, T]   1 where there is a label, 0 on padding

    A sentence that is too long is cut before its end, and a warning says how many are.

    Args:
      vocabulary: the tokenizer.json of a translation model, or vocab.json of M2M-100.
      pairs: sentences with their translations.
      source_language, target_language: codes of their languages, as deu_Latn.
      length: T, of which a sentence has 2 less.

    Raises:
      ValueError: there are no pairs, one is not two texts, a language is not known, or T is below
        3.
    """
    tokenizer = open_tokenizer(vocabulary)
    from_language = tokenizer.language(source_language, 'source_language')
    into_language = tokenizer.language(target_language, 'target_language')
    if length < 3:
        raise ValueError(f'length={length} has no room for a language, an id and the end; use 3 or '
                         'more.')
    pairs = list(pairs)
    if not pairs:
        raise ValueError('there are no pairs to learn from; give (sentence, translation) pairs.')
    _check(pairs)
    sides = [tokenizer.encode([pair[side] for pair in pairs]) for side in (0, 1)]
    room = length - 2
    if num_cut := sum(max(map(len, both)) > room for both in zip(*sides, strict=True)):
        logging.warning('%s %s cut at length=%d ids', counted(num_cut, 'pair'), are(num_cut),
                        length)

    arrays = {name: np.full([len(pairs), length], tokenizer.pad, np.int32)
              for name in ('source', 'target', 'label')}
    weight = np.zeros([len(pairs), length], np.float32)
    end = tokenizer.ends[0]
    for row, (sentence, translation) in enumerate(zip(*sides, strict=True)):
        source = tokenizer.source(from_language, sentence[:room])
        label = [into_language, *translation[:room], end]
        arrays['source'][row, :len(source)] = source
        arrays['target'][row, :len(label)] = [end, *label[:-1]]
        arrays['label'][row, :len(label)] = label
        weight[row, :len(label)] = 1
    return {**arrays, 'weight': weight}


def _check(pairs: Sequence[object]) -> None:
    """Raises ValueError for what is no pair, such as a text, whose first two characters would be.
    """
    for number, pair in enumerate(pairs, 1):
        texts = pair if isinstance(pair, (tuple, list)) else ()
        if len(texts) != 2 or not all(isinstance(text, str) for text in texts):
            raise ValueError(f'pair {number} is {show(pair)}, but a pair is two texts, (sentence, '
                             'translation); write it so.')
