"""Pair: a sentence, its English, and where they were found."""
from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """Where a pair was found.

    Attributes:
      source: the name of the source in the report.
      file: path below the source; '' if the source has no files.
      line: counted from 1; 0 if there are no lines.
      key: the key of a message, for sources that have keys.
    """
    source: str
    file: str = ''
    line: int = 0
    key: str = ''

    def __str__(self) -> str:
        return ((self.file or self.source) + (f':{self.line}' if self.line else '')
                + (f' {self.key}' if self.key else ''))


class Pair(NamedTuple):
    """A sentence and its English.

    Attributes:
      code: the code of the language; until the pair is cleaned, the one that the source uses.
      text: the sentence.
      english: the translation of the sentence.
      place: where the pair was found.
    """
    code: str
    text: str
    english: str
    place: Place
