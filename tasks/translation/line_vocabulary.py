"""LineVocabulary: what turns lines into sources, and ids into translations.

There are two kinds: `TaggedVocabulary`, that of a corpus, and `Multilingual` (multilingual.py),
that of a folder of Hugging Face.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from lingpipe.tasks.translation.corpus.vocabulary import END, PAD, START, Vocabulary
from lingpipe.tasks.translation.decode_params import DecodeParams
from lingpipe.tasks.translation.source_ids import source_ids, warn_of_tags


class LineVocabulary(Protocol):
    """What a LineTranslator asks for.

    Attributes:
      start: the id that the decoder reads first; None: the first of `prompt`.
      pad: the id behind shorter sources.
      ends: the ids that end a translation.
    """
    start: int | None
    pad: int
    ends: tuple[int, ...]

    def sources(self, lines: Sequence[str], params: DecodeParams,
                has_tags: bool | None) -> list[list[int]]:
        """Returns the ids of lines, with those around them; a blank line has none.

        Args:
          lines: one sentence each.
          params: how lines are translated.
          has_tags: whether sources of the run had tags; None: it is not known.

        Raises:
          ValueError: a language is not known.
        """

    def prompt(self, params: DecodeParams) -> list[int]:
        """Returns the ids that every translation begins with, which are not searched for.

        Raises:
          ValueError: a language is not known.
        """

    def decode(self, ids: Any) -> list[str]:
        """Returns the translations of rows of ids, each up to its first end."""


class TaggedVocabulary:
    """A vocabulary of sentencepiece.

    Its sources may begin with tags of languages, and its translations begin with the start.
    """
    start: int | None = START
    pad = PAD
    ends: tuple[int, ...] = (END,)

    def __init__(self, vocabulary: Vocabulary):
        self._vocabulary = vocabulary

    def sources(self, lines: Sequence[str], params: DecodeParams,
                has_tags: bool | None) -> list[list[int]]:
        """Returns what `source_ids` does, and warns of tags that are not as in the run."""
        sources = source_ids(self._vocabulary, lines, params.language, params.max_source_length)
        warn_of_tags(sources, self._vocabulary, has_tags)
        return sources

    def prompt(self, params: DecodeParams) -> list[int]:
        """Returns no ids. Raises ValueError if there is a target language."""
        if params.target_language:
            raise ValueError(f'task.decode.target_language={params.target_language!r}, but a model '
                             'with this vocabulary translates into the one language that it '
                             'learned; leave it empty.')
        return []

    def decode(self, ids: Any) -> list[str]:
        """Returns the sentences of rows of ids, up to the first end."""
        return self._vocabulary.decode(ids)
