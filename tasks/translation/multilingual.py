"""Multilingual: the vocabulary of a translation model of Hugging Face, which has many languages.

    source               language ids </s>, or ids </s> language if legacy_behaviour is true
    what is decoded      </s> language ids </s>

So do the tokenizers of transformers, and `generate` with a forced_bos_token_id.
"""
from __future__ import annotations

import abc
import re
from collections.abc import Mapping, Sequence
from typing import Any

from lingpipe.hyperparams import Params
from lingpipe.tasks.translation.decode_params import DecodeParams
from lingpipe.tasks.translation.source_ids import line_numbers, shortened
from lingpipe.wording.values import nearest

_TAG = re.compile(r'<([\w-]+)>\s*')


class Multilingual(abc.ABC):
    """A LineVocabulary whose sources and translations name their languages.

    Attributes:
      languages: the id of each language's token, by its code, as eng_Latn, or en for __en__.
      is_legacy: whether the language comes behind a source, as in NLLB's first tokenizer.
      start: None, since what is decoded begins with the ids of `prompt`.
      pad: the id of padding.
      ends: the ids that end a translation.
      size: the largest id plus 1.
    """
    languages: Mapping[str, int]
    is_legacy: bool
    start: int | None = None
    pad: int
    ends: tuple[int, ...]
    size: int

    @abc.abstractmethod
    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of texts alone."""

    @abc.abstractmethod
    def texts(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Returns the texts of rows of ids, without special tokens."""

    def check_fits(self, model: Params) -> None:
        """Raises ValueError unless a network has all ids, and the same padding."""
        vocab_size = getattr(model, 'vocab_size', self.size)
        if self.size > vocab_size:
            raise ValueError(f'the tokenizer has {self.size:,} ids, but '
                             f'task.model.vocab_size={vocab_size:,}; set task.vocabulary to that '
                             'of this model.')
        padding_id = getattr(model, 'padding_id', self.pad)
        if padding_id != self.pad:
            raise ValueError(f'the tokenizer pads with the id {self.pad}, but '
                             f'task.model.padding_id={padding_id}; set task.vocabulary to that of '
                             'this model.')

    def language(self, code: str, where: str) -> int:
        """Returns the id of a language's token. Raises ValueError, which begins with `where`."""
        if code not in self.languages:
            raise ValueError(f'{where}={code!r} is no language of the tokenizer; '
                             f'{nearest(code, self.languages)}')
        return self.languages[code]

    def source(self, language: int, ids: Sequence[int]) -> list[int]:
        """Returns what the encoder reads: the ids of a text with those around them."""
        end = self.ends[0]
        return [*ids, end, language] if self.is_legacy else [language, *ids, end]

    def sources(self, lines: Sequence[str], params: DecodeParams,
                has_tags: bool | None) -> list[list[int]]:
        """Returns what the encoder reads of lines; a blank line has no ids.

        Args:
          lines: one sentence each; one may begin with its language, as <deu_Latn>.
          params: `language` is that of all other lines; longer sources are cut at
            `max_source_length`, with a warning.
          has_tags: not read.

        Raises:
          ValueError: there is no such language, or none is named.
        """
        p = params
        usual = self.language(p.language, 'task.decode.language') if p.language else None
        tags = [tag if (tag := _TAG.match(line)) and tag[1] in self.languages else None
                for line in lines]
        texts = [line[tag.end():] if tag else line for line, tag in zip(lines, tags, strict=True)]
        rows = [ids if text.strip() else []
                for text, ids in zip(texts, self.encode(texts), strict=True)]
        languages = [self.languages[tag[1]] if tag else usual for tag in tags]
        if missing := [i for i, (ids, language) in enumerate(zip(rows, languages, strict=True))
                       if ids and language is None]:
            first = next(iter(self.languages))
            raise ValueError('task.decode.language is empty, and no language is named in '
                             f'{line_numbers(missing)}; set it, as {first}, or begin a line with '
                             f'<{first}>.')
        return [self.source(language, ids) if ids and language is not None else []
                for language, ids in zip(languages, shortened(rows, p.max_source_length, 2),
                                         strict=True)]

    def prompt(self, params: DecodeParams) -> list[int]:
        """Returns the ids with which what is decoded begins: the end, and the target language.

        Raises:
          ValueError: there is no such language, or none is named.
        """
        if not params.target_language:
            raise ValueError('task.decode.target_language is empty, and the model translates into '
                             f'many languages; set it, as {next(iter(self.languages))}.')
        return [self.ends[0], self.language(params.target_language, 'task.decode.target_language')]

    def decode(self, ids: Any) -> list[str]:
        """Returns the texts of rows of ids up to the first end, without special tokens."""
        rows = [[int(i) for i in row] for row in ids]
        return self.texts([row[:next((place for place, i in enumerate(row) if i in self.ends),
                                         len(row))] for row in rows])
