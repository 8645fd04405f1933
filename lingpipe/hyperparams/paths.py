"""Paths of Params, and the errors that name them.

A path is made of names of fields, indices of tuples and keys of dicts, from the root down:

    name, then any of  .name  [17]  ["any key"]       task.layers[17].reads["a.b"]
"""
from __future__ import annotations

import functools
import json
import re
from typing import TypeAlias

Key: TypeAlias = str | int  # One step of a path: a field, a dict's key or a tuple's index.

# What stands in brackets: an index, or a key as JSON writes it.
_ITEM = r'0|[1-9][0-9]{,8}|"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9A-Fa-f]{4})*"'
PATH_PATTERN = rf'\w+(?:\.\w+|\[(?:{_ITEM})\])*'
_is_name = functools.lru_cache(1000)(re.compile(r'\w+').fullmatch)  # Most steps are names.


class ParamsError(ValueError):
    """A mistake in Params or in their text; the message names the whole path from the root.

    `path` is that path alone, or '' if the mistake is in no particular value.
    """

    def __init__(self, message: str, path: str = ''):
        super().__init__(message)
        self.path = path


class UnknownParamError(ParamsError, AttributeError):
    """A name that is no field, entry or item."""


@functools.lru_cache(1000)
def split_path(path: str) -> tuple[Key, ...]:
    """The steps of a path: 'layers[1].units' is ('layers', 1, 'units'), '' is ()."""
    if not isinstance(path, str) or not re.fullmatch(f'(?:{PATH_PATTERN})?', path):
        raise ParamsError(f'{path!r} is not a path of Params; write one like task.layers[0].units')
    steps = re.findall(rf'(\w+)|\[({_ITEM})\]', path)
    return tuple(name or json.loads(item) for name, item in steps)


def join_path(path: str, key: Key) -> str:
    """The path of what `key` names inside the value at `path`."""
    if isinstance(key, int):
        return f'{path}[{key}]'
    if not _is_name(key):
        return f'{path}[{json.dumps(key, ensure_ascii=False)}]'
    return f'{path}.{key}' if path else key
