"""Tokenizer: that of a folder of Hugging Face, as the vocabulary of a language model.

Translations have a subclass of it (tasks/translation/tokenizer.py).

    FOLDER/tokenizer.json            ids of texts, texts of ids, and the start, if it adds one
    FOLDER/tokenizer_config.json     eos_token: the end of a text
    FOLDER/generation_config.json    eos_token_id: what else ends a text that is written
    FOLDER/config.json               likewise, if the file before says nothing
    FOLDER/chat_template.jinja       what makes texts of conversations (chat.py)

The package `tokenizers` reads it, of which transformers' fast tokenizers are made. So ids are those
of transformers, and special tokens that a text spells are read as such.
"""
from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from lingpipe.checkpoint.hugging_face import CONFIG, read_json
from lingpipe.tasks.text.chat import ChatTemplate, template_beside
from lingpipe.wording.values import show

_BYTE = re.compile('<0x[0-9A-F]{2}>')


class Tokenizer:
    """A tokenizer.json. The attributes are those of Vocabulary (vocabulary.py)."""
    file_name = 'tokenizer.json'

    def __init__(self, path: str, ends: Sequence[int] = (),
                 chat_template: Mapping[str, Any] | None = None):
        """
        Args:
          path: the file.
          ends: the ids that end a text; none: the files beside it say so.
          chat_template: the facts of the template, if there is none beside the file.

        Raises:
          ValueError: tokenizers is not installed, the file is missing or damaged or adds more to a
            text than a start and the end, or nothing says what ends a text.
        """
        if not os.path.isfile(path):
            raise ValueError(f'{path} is no file; name the tokenizer.json of a folder of Hugging '
                             'Face.')
        self._described = read_json(path)
        with open(path, 'rb') as file:
            self._content = file.read()
        try:
            tokenizers = importlib.import_module('tokenizers')
        except ImportError as error:
            raise ValueError('tokenizers is needed for the vocabularies of Hugging Face and cannot '
                             f'be imported ({error}); run pip install tokenizers.') from error
        try:
            self._tokenizer = tokenizers.Tokenizer.from_buffer(self._content)
        except Exception as error:   # It raises no other type.
            raise ValueError(f'{path} is no tokenizer that tokenizers {tokenizers.__version__} '
                             f'reads: {error}; fetch it again, or another version.') from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

        decoder = self._described.get('decoder') or {}
        self._decoders = {part.get('type') for part in decoder.get('decoders', [decoder])}
        self._added = self._tokenizer.get_added_tokens_decoder()
        self._special = {i for i, token in self._added.items() if token.special}
        self.size = 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values())
        self.ends = tuple(ends) or _ends_beside(path, self._tokenizer)
        self.before = self.ids_before(path)
        self.unknown = self._unknown()
        if self.unknown < 0 and self._leaves_out():
            logging.warning('%s leaves out characters that it has no piece for, without a trace in '
                            'the ids; give its model an unknown token, or take one that spells '
                            'them in bytes', path)
        self.chat_template = template_beside(path)
        if self.chat_template is None and chat_template:
            self.chat_template = ChatTemplate(**chat_template)
        self.facts: Mapping[str, Any] = {
            'vocabulary_file': self.file_name, 'ends': list(self.ends),
            **({'chat_template': self.chat_template.facts} if self.chat_template else {})}

    def fits(self, vocab_size: int) -> bool:
        """Whether the network has all of its ids; tables are often made longer."""
        return self.size <= vocab_size

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of texts, without the start and the end.

        Raises:
          ValueError: the tokenizer has neither a piece for a character nor an unknown token.
        """
        with _refusing_texts():
            return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(
                list(texts), add_special_tokens=False)]

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns the ids of each text, [t], and where in the text each begins and ends, [t, 2]."""
        with _refusing_texts():
            encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [(np.array(encoding.ids, np.int32),
                 np.array(encoding.offsets, np.int64).reshape([-1, 2])) for encoding in encodings]

    def decode(self, ids: Any) -> list[str]:
        """Returns the texts of rows of ids, without special tokens."""
        rows = [[int(i) for i in row] for row in ids]
        texts: list[str] = (
            [self._tokenizer.decoder.decode(self._pieces(row)) for row in rows]
            if 'ByteFallback' in self._decoders
            else self._tokenizer.decode_batch(rows, skip_special_tokens=True))
        return texts

    def _pieces(self, row: list[int]) -> list[str]:
        """The pieces of ids but special tokens, each run of bytes as one.

        ByteFallback itself makes U+FFFD of every byte of a run if a single character in it is
        incomplete, so that what was read before would change.
        """
        pieces = [self._tokenizer.id_to_token(i) or '' for i in row if i not in self._special]
        joined: list[str] = []
        for is_byte, group in itertools.groupby(pieces, lambda one: bool(_BYTE.fullmatch(one))):
            run = list(group)
            if is_byte:
                run = [bytes(int(piece[3:5], 16) for piece in run).decode(errors='replace')]
            joined += run
        return joined

    def bytes_of_ids(self) -> np.ndarray:
        """How many bytes of UTF-8 each id spells, int64 [V]; start and end spell none."""
        sizes = np.zeros([self.size], np.int64)
        for i in range(self.size):
            piece = self._tokenizer.id_to_token(i) or ''   # Some numbers may be no ids.
            if i in self._added:
                sizes[i] = len(self._added[i].content.encode())
            elif 'ByteLevel' in self._decoders:   # One character stands for each byte.
                sizes[i] = len(piece)
            elif 'ByteFallback' in self._decoders and _BYTE.fullmatch(piece):
                sizes[i] = 1
            else:
                sizes[i] = len(piece.replace('\u2581', ' ').encode())
        sizes[[*self.before, self.ends[0]]] = 0
        return sizes

    def special_ids(self) -> dict[str, int]:
        """Returns the special tokens, which `decode` leaves out, with their ids."""
        return {self._added[i].content: i for i in sorted(self._special)}

    def save(self, path: str) -> None:
        """Writes the file as it was."""
        with open(path, 'wb') as file:
            file.write(self._content)

    def _unknown(self) -> int:
        """The id of text that has no other; -1: there is none."""
        model = self._described['model']
        if (token := model.get('unk_token')) is not None:
            unknown = self._tokenizer.token_to_id(token)   # Some files name one that is no id.
        else:
            unknown = model.get('unk_id')
        return -1 if unknown is None else int(unknown)

    def _leaves_out(self) -> bool:
        """Whether a character that no vocabulary has as a piece becomes no id at all."""
        try:
            return not self._tokenizer.encode('\U0010fffd', add_special_tokens=False).ids
        except Exception:   # It makes an error of such characters, when one comes.
            return False

    def ids_before(self, path: str) -> tuple[int, ...]:
        """The ids that come before a text. Raises ValueError if they are no start."""
        with _refusing_texts():
            encoding = self._tokenizer.encode('a')
        is_added = encoding.special_tokens_mask
        num_before = sum(itertools.takewhile(bool, is_added))
        num_behind = sum(itertools.takewhile(bool, reversed(is_added)))
        before = encoding.ids[:num_before]
        behind = encoding.ids[len(encoding.ids) - num_behind:]
        if len(before) > 1 or before == [self.ends[0]] or behind not in ([], [self.ends[0]]):
            raise ValueError(f'{path} puts the ids {before} before each text and {behind} behind '
                             f'it, and lingpipe knows one start that is not the end, '
                             f'{self.ends[0]}, and this end behind it; take the tokenizer of a '
                             'causal language model.')
        return tuple(before)


@contextlib.contextmanager
def _refusing_texts() -> Iterator[None]:
    """Raises ValueError for a text of which the tokenizer makes no ids."""
    try:
        yield
    except Exception as error:
        if type(error) is not Exception:   # tokenizers raises no type of its own.
            raise
        raise ValueError(f'the tokenizer makes no ids of a text: {error}; put its unknown token '
                         'into the vocabulary of tokenizer.json, or leave out characters that it '
                         'has no piece for.') from error


def _ends_beside(path: str, tokenizer: Any) -> tuple[int, ...]:
    """The ids that end a text, by the files beside the tokenizer.

    Raises:
      ValueError: there are none, or one is no id.
    """
    folder = os.path.dirname(path)
    content = token_beside(path, 'eos_token')
    ends = [] if content is None else [tokenizer.token_to_id(content)]
    for name in ('generation_config.json', CONFIG):
        if (entry := _entry(folder, name, 'eos_token_id')) is not None:
            ends += entry if isinstance(entry, list) else [entry]
            break
    if not ends:
        raise ValueError(f'nothing beside {path} says what ends a text; put its '
                         'tokenizer_config.json with eos_token there, or generation_config.json '
                         f'or {CONFIG} with eos_token_id.')
    for end in ends:
        if type(end) is not int or tokenizer.id_to_token(end) is None:
            raise ValueError(f'the files beside {path} say that {show(content)} or {show(ends)} '
                             f'ends a text, of which {show(end)} is no id of the tokenizer; '
                             'correct eos_token or eos_token_id.')
    return tuple(dict.fromkeys(ends))


def token_beside(path: str, name: str) -> str | None:
    """The content of a special token, as eos_token, in tokenizer_config.json beside a tokenizer."""
    token = config_beside(path, name)
    content = token.get('content') if isinstance(token, dict) else token
    return None if content is None else str(content)


def config_beside(path: str, key: str) -> Any:
    """What tokenizer_config.json beside a tokenizer says; None: nothing."""
    return _entry(os.path.dirname(path), 'tokenizer_config.json', key)


def _entry(folder: str, name: str, key: str) -> Any:
    """What a file of a folder says; None if it is missing, or says nothing."""
    path = os.path.join(folder, name)
    return read_json(path).get(key) if os.path.exists(path) else None
