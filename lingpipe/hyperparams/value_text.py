"""The text of one value: scalars, tuples and dicts of these. Nothing is ever evaluated.

    true  none  3  1e-3  nan  "text"  [1, 2]  {"a": 1}  package.module:Class

It is read in two steps, because `1` is an int in one field and a string in another: `read` gives
lists, dicts, quoted strings and `Word`s, and `field_types.convert` decides by the field's type.
"""
from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

from lingpipe.hyperparams.errors import ParamsError, show
from lingpipe.hyperparams.paths import MAX_DEPTH

_QUOTED = r'"(?:[^"\\]|\\.)*"|' r"'(?:[^'\\]|\\.)*'"
_ENTRY = re.compile(rf'\s*({_QUOTED}|[^:]*)\s*:(.*)', re.DOTALL)
_ATOM = re.compile(rf'(?<!\w)(?:{_QUOTED})|.', re.DOTALL)  # The quote in "it's" opens no string.
_CLOSING = {'[': ']', '(': ')', '{': '}'}


@dataclasses.dataclass(frozen=True)
class Word:
    """Text whose type is not decided yet.

    A person, as in a flag, may leave out the quotes of a string and may name any module.
    """
    text: str
    is_by_person: bool

    def __repr__(self) -> str:
        return self.text


Reading: TypeAlias = 'Word | str | list[Reading] | dict[str, Reading]'


def write(value: object) -> str:
    """The text of a scalar, a tuple or a dict, which `read` and `convert` turn back."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (tuple, list)):
        return f'[{", ".join(map(write, value))}]'
    if isinstance(value, dict):
        return f'{{{", ".join(f"{write(k)}: {write(v)}" for k, v in value.items())}}}'
    return repr(value)


def read(text: str, is_by_person: bool) -> Reading:
    """Reads one value's text; `is_by_person` is as in Word.

    Raises:
      ParamsError: brackets or quotes that do not close, a missing value, a key that is there
        twice, or text after the value.
    """
    text = text.strip()
    quoted = re.match(_QUOTED, text, re.DOTALL)
    if quoted:
        _check_end(text, quoted.end())
        return _unquoted(text)
    if text[:1] not in _CLOSING:
        return Word(text, is_by_person)
    if text[0] != '{':
        return [read(piece, is_by_person) for piece in _pieces(text)]

    entries: dict[str, Reading] = {}
    for piece in _pieces(text):
        entry = _ENTRY.fullmatch(piece)
        if not entry:
            raise _unclosed(text, text.find(piece) + len(piece), "':'")
        if entry[1][:1] in _CLOSING:
            raise _too_deep(text, text.find(piece))
        key = str(read(entry[1], is_by_person))
        if key in entries:
            raise ParamsError(f'{show(text)} has the key {key!r} twice; keep one')
        entries[key] = read(entry[2], is_by_person)
    return entries


def readings(text: str) -> Iterator[Callable[[], Reading]]:
    """What a person may mean: what `read` gives, a list without brackets, or one plain string."""
    if text.lstrip().startswith((*_CLOSING, '"', "'")):
        yield lambda: read(text, is_by_person=True)
    if ',' in text:
        yield lambda: read(f'[{text}]', is_by_person=True)
    yield lambda: Word(text.strip(), is_by_person=True)


def _pieces(text: str) -> list[str]:
    """What stands in the brackets that enclose the text, cut at the commas in no inner ones."""
    pieces: list[str] = []
    still_open: list[str] = []  # The brackets that must close, the innermost last.
    for match in _ATOM.finditer(text):
        atom, at = match[0], match.start()
        if atom in _CLOSING:
            still_open.append(_CLOSING[atom])
        elif atom == still_open[-1]:
            still_open.pop()
        if len(still_open) > MAX_DEPTH:
            raise _too_deep(text, at)

        if not still_open or atom == ',' and len(still_open) == 1:
            piece = text[1 + sum(len(piece) + 1 for piece in pieces):at]
            if atom == ',' and not piece.strip():
                raise ParamsError(f'{show(text)} lacks a value at character {at}; write one')
            pieces.append(piece)
        if not still_open:
            _check_end(text, at + 1)
            return pieces if pieces[-1].strip() else pieces[:-1]
    raise _unclosed(text, len(text), f"',' or {still_open[-1]!r}")


def _too_deep(text: str, at: int) -> ParamsError:
    return ParamsError(f'{show(text)} nests too deep, or has a list for a key, '
                       f'at character {at}; simplify it')


def _unclosed(text: str, at: int, missing: str) -> ParamsError:
    return ParamsError(f'{show(text)} lacks {missing} at character {at}; '
                       'close its brackets and quotes')


def _check_end(text: str, end: int) -> None:
    """Raises ParamsError if there is more than a value, which ends at `end`."""
    if end < len(text):
        raise ParamsError(f'{show(text)} goes on after its value, with {show(text[end:])}; '
                          'quote it if it is one string')


def _unquoted(quoted: str) -> str:
    """The string that stands in double quotes, as in JSON, or in single quotes."""
    if quoted[0] == "'":  # In JSON \' means nothing, and a bare " must be escaped.
        inner = quoted[1:-1].replace("\\'", "'")
        quoted = '"' + re.sub(r'\\.|"', lambda m: '\\"' if m[0] == '"' else m[0], inner) + '"'
    try:
        return str(json.loads(quoted, strict=False))
    except ValueError as error:
        raise ParamsError(f'{show(quoted)} is not a string: {error}; '
                          'escape a backslash as \\\\') from error
