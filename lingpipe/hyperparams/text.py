"""The text of Params: the class, then one line `path : value` for every value; and differences."""
from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from lingpipe.hyperparams.class_names import Owned, class_name
from lingpipe.hyperparams.fields import ABSENT, parts
from lingpipe.hyperparams.paths import PATH_PATTERN, Key, ParamsError, join_path, split_path
from lingpipe.hyperparams.value_text import write
from lingpipe.wording.values import show


def lines(value: object, path: str = '') -> Iterator[str]:
    """The lines of the value at a path; values are equal if and only if their lines are."""
    before = f'{path} : ' if path else ''
    if isinstance(value, Owned):
        yield before + class_name(type(value))
    elif _is_plain(value):
        yield before + write(value)
        return
    for key, part in parts(value).items():
        yield from lines(part, join_path(path, key))


def diff(a: object, b: object, path: str = '') -> list[tuple[str, Any, Any]]:
    """(path, value in a, value in b) of all that differs.

    A change of class is one difference, whose values are the two Params.
    """
    if type(a) is type(b) and not (_is_plain(a) and _is_plain(b)):
        parts_a, parts_b = parts(a), parts(b)
        return [difference for key in parts_a | parts_b for difference in diff(
            parts_a.get(key, ABSENT), parts_b.get(key, ABSENT), join_path(path, key))]
    return [] if type(a) is type(b) and write(a) == write(b) else [(path, a, b)]


def _is_plain(value: object) -> bool:
    """Whether the text of a value is one line."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return not (isinstance(value, Owned) or isinstance(value, dict) and value)


@dataclasses.dataclass
class Written:
    """What a text has at a path: the text after ':', unless there is no line, and what is below."""
    number: int  # Of the line, or of the first line below it.
    text: str | None = None
    below: dict[Key, Written] = dataclasses.field(default_factory=dict)


def parsed(text: str) -> Written:
    """What a whole text has at its root, where the class of the Params is written."""
    written = [(number, line) for number, line in enumerate(map(str.strip, text.split('\n')), 1)
               if line and not line.startswith('#')]
    if not written:
        raise ParamsError('line 1: the text is empty; its first line is a class, '
                          'package.module:Class')
    root = Written(*written[0])
    for number, line in written[1:]:
        match = re.fullmatch(rf'({PATH_PATTERN})\s*:\s*(.*)', line, re.DOTALL)
        if not match:
            raise ParamsError(f'line {number}: {show(line)} is not a line of Params; '
                              'write path : value')
        node = root
        for key in split_path(match[1]):
            node = node.below.setdefault(key, Written(number))
        if node.text is not None:
            raise ParamsError(f'line {number}: {match[1]} is here a second time, after line '
                              f'{node.number}; keep one of them')
        node.number, node.text = number, match[2]
    return root
