"""Pair: a sentence and its English, and where it was found."""
from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """Where a pair was found.

    Attributes:
      source: what the report calls the source.
      file: path below the source; '' if it has no files.
      line: 1 is the first; 0 if there are no lines.
      key: of a message, for sources that have keys.
    """
    source: str
    file: str = ''
    line: int = 0
    key: str = ''

    def __str__(self) -> str:
        return (self.file or self.source) + (f':{self.line}' if self.line else '') + (f' {self.key}' if self.key else '')


class Pair(NamedTuple):
    """A sentence and its English.

    Attributes:
      code: the language, as the source calls it until it is cleaned.
      text: the sentence.
      english: its translation.
      place: where it was found.
    """
    code: str
    text: str
    english: str
    place: Place
