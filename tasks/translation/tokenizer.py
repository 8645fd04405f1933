"""TranslationTokenizer: the tokenizer.json of a translation model of Hugging Face.

    tokenizer.json           ids of texts, and the special tokens, of which each language is one
    tokenizer_config.json    eos_token, pad_token, and legacy_behaviour of NLLB's first tokenizer

    source               language ids </s>, or ids </s> language if legacy_behaviour is true
    what is decoded      </s> language ids </s>

So do transformers' NllbTokenizer and `generate` with a forced_bos_token_id, whatever tokenizer.json
itself puts around a text.
"""
from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lingpipe.hyperparams import Params
from lingpipe.tasks.text.tokenizer import Tokenizer, config_beside, token_beside
from lingpipe.tasks.translation.decode_params import DecodeParams
from lingpipe.tasks.translation.source_ids import line_numbers, shortened
from lingpipe.wording.values import nearest

_TAG = re.compile(r'<([\w-]+)>\s*')


class TranslationTokenizer(Tokenizer):
    """A tokenizer.json with languages, as a LineVocabulary.

    Attributes:
      languages: the id of each language's token, by its code, as eng_Latn, or en for __en__.
      start: none: what is decoded begins with the ids of `prompt`.
      pad: the id of padding.
    """

    def __init__(self, path: str):
        """
        Args:
          path: the file.

        Raises:
          ValueError: as Tokenizer does, or the files name no languages or no padding.
        """
        super().__init__(path)
        tokens = self.special_ids()
        self.languages = {token.strip('_'): i for token, i in tokens.items()
                          if not (token.startswith('<') and token.endswith('>'))}
        self.start: int | None = None
        self.pad = tokens.get(token_beside(path, 'pad_token') or '<pad>', -1)
        if not self.languages or self.pad < 0:
            what = 'tokens of languages' if not self.languages else 'token of padding'
            raise ValueError(f'{path} has no {what} among its special tokens; take the tokenizer '
                             'of a translation model, as that of NLLB-200.')
        self._is_legacy = config_beside(path, 'legacy_behaviour') is True

    def ids_before(self, path: str) -> tuple[int, ...]:
        """None: `source` says what is around a text."""
        return ()

    def check_fits(self, model: Params) -> None:
        """Raises ValueError unless a network has all ids, and the same padding."""
        vocab_size = getattr(model, 'vocab_size', self.size)
        if not self.fits(vocab_size):
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
                             f'{nearest(code, self.languages)}.')
        return self.languages[code]

    def source(self, language: int, ids: Sequence[int]) -> list[int]:
        """Returns what the encoder reads: the ids of a text with those around them."""
        end = self.ends[0]
        return [*ids, end, language] if self._is_legacy else [language, *ids, end]

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
        return super().decode([row[:next((place for place, i in enumerate(row) if i in self.ends),
                                         len(row))] for row in rows])
