"""The text of one value: scalars, tuples and dicts of these. Nothing is ever given to `eval`.

    true  none  3  1e-3  nan  "text"  [1, 2]  {"a": 1}  package.module:Class

It is read in two steps, because `1` is an int in one field and a string in another: `read` gives lists, dicts, quoted strings and
`Word`s (text that is not decided yet), and field_types.convert decides by the field's type.
"""
from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from lingpipe.hyperparams.errors import ParamsError, show
from lingpipe.hyperparams.paths import MAX_DEPTH

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|' r"'(?:[^'\\]|\\.)*'", re.DOTALL)


class Word:
    """Text whose type is not decided yet.

    Attributes:
      text: without spaces around it.
      is_by_person: whether a person wrote it, as in a flag. People may leave out the quotes of a string,
        and may name any module.
    """

    def __init__(self, text: str, is_by_person: bool):
        self.text, self.is_by_person = text, is_by_person

    def __repr__(self) -> str:
        return self.text


def write(value: Any) -> str:
    """The text of a scalar, a tuple or a dict of these; `read` and `convert` give the value back."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (tuple, list)):
        return f'[{", ".join(map(write, value))}]'
    if isinstance(value, dict):
        return f'{{{", ".join(f"{write(k)}: {write(v)}" for k, v in value.items())}}}'
    return repr(value)


def read(text: str, is_by_person: bool) -> Any:
    """Lists, dicts, strings and Words of one value's text; `is_by_person` is as in Word.

    Raises:
      ParamsError: brackets or quotes that do not close, or text after the value.
    """
    reader = _Reader(text, is_by_person)
    value = reader.value('', 0)
    reader.skip_spaces()
    if reader.at < len(text):
        raise ParamsError(f'{show(text)} goes on after its value, with {show(text[reader.at:])}; quote it if it is one string')
    return value


def readings(text: str) -> Iterator[Callable[[], Any]]:
    """What a person may mean by a text on the command line: as `read`; a list without brackets; one plain string."""
    if text.lstrip().startswith(tuple('[({"\'')):
        yield lambda: read(text, True)
    if ',' in text:
        yield lambda: read(f'[{text}]', True)
    yield lambda: Word(text.strip(), True)


class _Reader:
    """A cursor on one value's text; recursive descent."""

    def __init__(self, text: str, is_by_person: bool):
        self.text, self.at, self.is_by_person = text, 0, is_by_person

    def skip_spaces(self) -> None:
        while self.text[self.at:self.at + 1].isspace():
            self.at += 1

    def value(self, stop: str, depth: int) -> Any:
        """One value; a Word ends at any character of `stop`."""
        self.skip_spaces()
        first = self.text[self.at:self.at + 1]
        if first and first in '[({':
            if depth >= MAX_DEPTH:   # also the depth of a key, which is no list
                raise ParamsError(f'{show(self.text)} nests too deep, or has a list for a key, at character {self.at}; simplify it')
            return self.items(']' if first == '[' else ')' if first == '(' else '}', depth)
        quoted = _QUOTED.match(self.text, self.at)
        if quoted:
            self.at = quoted.end()
            return self.unquoted(quoted[0])
        end = self.at
        while end < len(self.text) and self.text[end] not in stop:
            end += 1
        word = self.text[self.at:end].strip()
        self.at = end
        if not word and stop:
            raise ParamsError(f'{show(self.text)} lacks a value at character {self.at}; write one')
        return Word(word, self.is_by_person)

    def items(self, close: str, depth: int) -> Any:
        """The inside of brackets: a list, or a dict up to '}'."""
        self.at += 1
        pairs: dict[str, Any] = {}
        values: list[Any] = []
        while True:
            self.skip_spaces()
            if self.text[self.at:self.at + 1] == close:
                self.at += 1
                return pairs if close == '}' else values
            key = None
            if close == '}':
                key = str(self.value(':}', MAX_DEPTH))
                self.expect(':')
                if key in pairs:
                    raise ParamsError(f'{show(self.text)} has the key {key!r} twice; keep one')
            item = self.value(f',{close}', depth + 1)
            if key is None:
                values.append(item)
            else:
                pairs[key] = item
            self.expect(',', unless=close)

    def expect(self, char: str, unless: str = '') -> None:
        self.skip_spaces()
        found = self.text[self.at:self.at + 1]
        if found == char:
            self.at += 1
        elif not found or found != unless:
            raise ParamsError(f'{show(self.text)} lacks {char!r}{f" or {unless!r}" if unless else ""} '
                              f'at character {self.at}; close its brackets and quotes')

    def unquoted(self, quoted: str) -> str:
        if quoted[0] == "'":   # as JSON: \' means ', and a bare " must be escaped
            inner = re.sub(r'\\.|"', lambda m: {"\\'": "'", '"': '\\"'}.get(m[0], m[0]), quoted[1:-1], flags=re.DOTALL)
            quoted = f'"{inner}"'
        try:
            return json.loads(quoted, strict=False)
        except ValueError as error:
            raise ParamsError(f'{show(quoted)} is not a string: {error}; escape a backslash as \\\\') from error
