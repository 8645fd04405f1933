"""Cleaner: decides which pairs are kept, and counts every other in the report with its reason.

    language        known, asked for, and no formal variant; from here on a pair has the code of
                    its language: 'sr-el' -> 'sr'
    form            made NFC, runs of spaces made one, invisible marks removed
    markup          no markup, placeholders or addresses on either side
    words           letters on both sides; neither too long nor too short
    translated      the translation differs from the English
    repeated        the pair has not come before, in any source
"""
from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator

from lingpipe.tasks.translation.corpus.languages import KNOWN, checked, language_of
from lingpipe.tasks.translation.corpus.pair import Pair
from lingpipe.tasks.translation.corpus.report import FOUND, KEPT, Report

# Matches what texts of programs hold besides words.
MARKUP = re.compile(r'''
    \{\{ | \}\} | \[\[ | \]\] | [<>|%\\{}] | '' |  # templates, links, tags, tables, wiki emphasis
    \$\d | \$\w+ |                                 # $1, $name
    &\w | &\# |                                    # entities, keys of menus
    __\w+ | \b_\w |                                # __TOC__, _File
    \b[a-z]+:// | \bwww\. | \bmailto: | \w@\w |    # addresses
    [\ue000-\uf8ff\ufffd]                          # private characters, characters that were lost
    ''', re.VERBOSE | re.IGNORECASE)
# Matches marks of direction, byte order marks and soft hyphens, but not the joiners, which belong
# to the spelling of Persian and of Indian scripts.
INVISIBLE = re.compile(
    '[\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\u00ad\x00-\x08\x0e-\x1f\x7f]')


class Cleaner:
    """Cleans pairs, and remembers 8 bytes of each kept pair to recognize repetitions.

    Attributes:
      report: counts all pairs that were found, kept and dropped.
    """

    def __init__(self, languages: Collection[str] = tuple(KNOWN), max_words: int = 60,
                 max_characters: int = 400, min_words: int = 1, report: Report | None = None):
        """
        Args:
          languages: the codes of the languages that are kept.
          max_words: the most words of a sentence, on each side.
          max_characters: the most characters of a sentence, on each side; this is the limit for
            languages that write no spaces.
          min_words: the fewest words of the English.
          report: continues its counts; by default a new report is made.

        Raises:
          ValueError: a language is not known, or the limits exclude each other.
        """
        if not 1 <= min_words <= max_words or max_characters < 1:
            raise ValueError(f'min_words={min_words}, max_words={max_words}, '
                             f'max_characters={max_characters} leave nothing; use 1 <= min_words '
                             '<= max_words, and 1 character or more.')

        self.report = report or Report()
        self._languages = frozenset(checked(languages))
        self._max_words, self._max_characters, self._min_words = (max_words, max_characters,
                                                                  min_words)
        self._seen: set[bytes] = set()

    def clean(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yields the pairs that are kept, each with the code of its language."""
        for pair in pairs:
            self.report.count(FOUND, pair.place)
            cleaned, reason = self._cleaned(pair)
            self.report.count(reason, pair.place)
            if cleaned:
                yield cleaned

    def _cleaned(self, pair: Pair) -> tuple[Pair | None, str]:
        """Returns the pair as it is kept, or None, with the reason for the report."""
        language, why = language_of(pair.code)
        if language is None:
            return None, why
        if language not in self._languages:
            return None, 'language not asked for'

        text, english = normalized(pair.text), normalized(pair.english)
        if why := self._why_not(text, english):
            return None, why

        key = hashlib.blake2b('\0'.join((language, text, english)).encode(), digest_size=8).digest()
        if key in self._seen:
            return None, 'repeated'
        self._seen.add(key)
        return Pair(language, text, english, pair.place), KEPT

    def _why_not(self, text: str, english: str) -> str:
        """Returns why a pair is left out; '' if it is kept."""
        if not text or not english:
            return 'empty'
        if MARKUP.search(text) or MARKUP.search(english):
            return 'markup'
        if not any(map(str.isalpha, text)) or not any(map(str.isalpha, english)):
            return 'no letters'
        if (max(len(text), len(english)) > self._max_characters
                or max(len(text.split()), len(english.split())) > self._max_words):
            return 'overlong'
        if len(english.split()) < self._min_words:
            return 'too short'
        return 'not translated' if text.casefold() == english.casefold() else ''


def normalized(text: str) -> str:
    """Returns the text in NFC (Unicode Standard Annex 15), without invisible marks.

    Each run of white space becomes one space.
    """
    return ' '.join(INVISIBLE.sub('', unicodedata.normalize('NFC', text)).split())
