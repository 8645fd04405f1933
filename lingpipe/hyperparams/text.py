"""The text of values: scalars, tuples, dicts and whole Params. Nothing is ever evaluated.

    true  none  3  1e-3  nan  "text"  [1, 2]  {"a": 1}  package.module:Class

`1` is an int in one field and a string in another, so a text stays `Written` until
`field_types.convert` knows the type. Params have one line `path : value` for every value, below
the line of their class.
"""
from __future__ import annotations

import ast
import collections
import dataclasses
import json
import re
from typing import Any

from lingpipe.hyperparams.paths import PATH_PATTERN, Key, ParamsError, split_path
from lingpipe.wording.values import show

# The atoms of a text that JSON does not read as they are: strings in either quotes, words, round
# brackets and last commas. The quote in "it's" opens no string.
_ATOM = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*"|' r"'(?:[^'\\]|\\.)*')|"
    r'(?P<word>[^\s,:()[\]{}](?:[^,:()[\]{}]|:(?!\s))*)|[()]|,(?=\s*[)\]}])', re.DOTALL)
_BRACKETS = {'(': '[', ')': ']', ',': ''}


@dataclasses.dataclass
class Written:
    """A value as text, whose type is not decided yet.

    A person, as in a flag, may leave out the quotes of a string and may name any module.
    """
    text: str
    is_by_person: bool = False
    number: int = 0  # Of its line in the text of Params, or of the first line below it.
    below: dict[Key, Written] = dataclasses.field(default_factory=dict)  # The lines of its parts.

    def __repr__(self) -> str:
        return self.text


def write(value: object) -> str:
    """The text of a scalar, a tuple or a dict, which `convert` turns back."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (tuple, list)):
        return f'[{", ".join(map(write, value))}]'
    if isinstance(value, dict):
        return f'{{{", ".join(f"{write(k)}: {write(v)}" for k, v in value.items())}}}'
    return repr(value)


def read(written: Written, where: str) -> Any:
    """The string, or the list or dict of these and of Written, that a text holds, or else itself.

    It raises a ParamsError, which begins with the path `where`, if brackets or quotes are wrong.
    """
    words: list[Written] = []

    def as_json(atom: re.Match[str]) -> str:
        """An atom in JSON. A word is its number in `words`, or a string if it is a key."""
        if atom['string']:
            return atom[0] if atom[0][0] == '"' else json.dumps(ast.literal_eval(atom[0]))
        if not atom['word']:
            return _BRACKETS[atom[0]]
        if atom.string.startswith(':', atom.end()):
            return json.dumps(atom[0].rstrip())
        words.append(Written(atom[0].rstrip(), written.is_by_person))
        return str(len(words) - 1)

    text = written.text
    if not text.startswith(('[', '(', '{', '"', "'")):
        return written
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


def parsed(text: str) -> Written:
    """The class that the text of Params begins with, and what is below it."""
    lines = [(number, line) for number, line in enumerate(map(str.strip, text.split('\n')), 1)
             if line and not line.startswith('#')]
    if not lines:
        raise ParamsError('line 1: the text is empty; its first line is a class, '
                          'package.module:Class')
    root = Written(lines[0][1], number=lines[0][0])
    for number, line in lines[1:]:
        match = re.fullmatch(rf'({PATH_PATTERN})\s*:\s*(\S.*)', line, re.DOTALL)
        if not match:
            raise ParamsError(f'line {number}: {show(line)} is not a line of Params; '
                              'write path : value')
        node = root
        for key in split_path(match[1]):
            node = node.below.setdefault(key, Written('', number=number))
        if node.text:
            raise ParamsError(f'line {number}: {match[1]} is here a second time, after line '
                              f'{node.number}; keep one of them')
        node.number, node.text = number, match[2]
    return root
