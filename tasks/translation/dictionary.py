"""Dictionary: translates word by word, which is the least that a translator must beat.

A word becomes the English word that comes with it most reliably in the training pairs. The measure
is Dice's coefficient (Smadja et al., 1996, section 4.1) over the pairs of sentences with the words:

    dice(word, english) = 2 n(word, english) / (n(word) + n(english))
"""
from __future__ import annotations

import collections
import itertools
import re
from collections.abc import Iterable, Sequence

_WORD = re.compile(r'\w+')
MIN_COUNT = 2   # fewest pairs that a word and its translation share: one is no evidence


class Dictionary:
    """The translations of one language's words.

    Attributes:
      words: the English words by word, all in lower case.
    """

    def __init__(self, texts: Iterable[str], english: Iterable[str]):
        """Counts the words of pairs of sentences.

        In a text without spaces, as in Chinese, few words come twice, so it stays as it is.
        """
        left: collections.Counter[str] = collections.Counter()
        right: collections.Counter[str] = collections.Counter()
        both: collections.Counter[tuple[str, str]] = collections.Counter()
        for text, other in zip(texts, english, strict=True):
            mine, theirs = (sorted(set(_WORD.findall(side.lower()))) for side in (text, other))
            left.update(mine)
            right.update(theirs)
            both.update(itertools.product(mine, theirs))

        best: dict[str, tuple[float, str]] = {}
        for (word, translation), number in both.items():
            dice = 2 * number / (left[word] + right[translation])
            if number >= MIN_COUNT and dice > best.get(word, (0., ''))[0]:
                best[word] = (dice, translation)

        self.words = {word: translation for word, (_, translation) in best.items()}

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Translates word by word, in the same order.

        Unknown words, and all that is no word, stay as they are. Capitals come from the source.
        """
        return [_WORD.sub(lambda match: self._translated(match[0]), text) for text in texts]

    def _translated(self, word: str) -> str:
        english = self.words.get(word.lower(), word)
        return english.capitalize() if word[0].isupper() and english[0].islower() else english
