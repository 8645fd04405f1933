"""The text of one value: scalars, tuples and dicts of these. Nothing is ever evaluated.

    true  none  3  1e-3  nan  "text"  [1, 2]  {"a": 1}  package.module:Class

It is read in two steps, because `1` is an int in one field and a string in another: `read` gives
lists, dicts, quoted strings and `Word`s, and `field_types.convert` decides by the field's type.
"""
from __future__ import annotations

import ast
import collections
import dataclasses
import json
import re
from typing import Any

from lingpipe.hyperparams.paths import ParamsError
from lingpipe.wording.values import show

# The atoms of a text that JSON does not read as they are: strings in either quotes, words, round
# brackets and last commas. The quote in "it's" opens no string.
_ATOM = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*"|' r"'(?:[^'\\]|\\.)*')|"
    r'(?P<word>[^\s,:()[\]{}](?:[^,:()[\]{}]|:(?!\s))*)|[()]|,(?=\s*[)\]}])', re.DOTALL)
_BRACKETS = {'(': '[', ')': ']', ',': ''}


@dataclasses.dataclass(frozen=True)
class Word:
    """Text whose type is not decided yet.

    A person, as in a flag, may leave out the quotes of a string and may name any module.
    """
    text: str
    is_by_person: bool

    def __repr__(self) -> str:
        return self.text


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


def read(text: str, where: str, is_by_person: bool) -> Any:
    """The Word, the string, or the list or dict of these that a text holds.

    It raises a ParamsError, which begins with the path `where`, if the text is no value.
    """
    words: list[Word] = []

    def as_json(atom: re.Match[str]) -> str:
        """An atom in JSON. A word is its number in `words`, or a string if it is a key."""
        if atom['string']:
            return atom[0] if atom[0][0] == '"' else json.dumps(ast.literal_eval(atom[0]))
        if not atom['word']:
            return _BRACKETS[atom[0]]
        if atom.string.startswith(':', atom.end()):
            return json.dumps(atom[0].rstrip())
        words.append(Word(atom[0].rstrip(), is_by_person))
        return str(len(words) - 1)

    text = text.strip()
    if not text.startswith(('[', '(', '{', '"', "'")):
        return Word(text, is_by_person)
    try:
        return json.loads(_ATOM.sub(as_json, text), strict=False, object_pairs_hook=_entries,
                          parse_int=lambda number: words[int(number)])
    except (ValueError, SyntaxError, RecursionError) as error:
        reason = getattr(error, 'msg', str(error))
        raise ParamsError(f'{where}: {show(text)} is not a value: {reason}; write one like '
                          '[1, 2], {"a": 1} or "text", with \\\\ for a backslash', where) from error


def _entries(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for key, count in collections.Counter(key for key, _ in pairs).items():
        if count > 1:
            raise ValueError(f'it has the key {key!r} twice')
    return dict(pairs)
