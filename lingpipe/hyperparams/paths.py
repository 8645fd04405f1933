"""Paths of Params: names of fields, indices of tuples and keys of dicts, from the root down.

    name, then any of  .name  [17]  ["any key"]       task.layers[17].reads["a.b"]
"""
from __future__ import annotations

import json
import re
from typing import Any

from lingpipe.hyperparams.errors import ParamsError, UnknownParamError, nearest, show

Key = str | int   # one step of a path: a field, a dict's key or a tuple's index

PATH_PATTERN = r'\w+(?:\.\w+|\[\d+\]|\["(?:[^"\\]|\\.)*"\])*'
_STEP = re.compile(r'\.?(?P<name>\w+)|\[(?P<index>\d+)\]|\[(?P<key>"(?:[^"\\]|\\.)*")\]')
MAX_DEPTH = 50


def split_path(path: str) -> list[Key]:
    """The steps of a path: 'layers[1].units' is ['layers', 1, 'units'], '' is [].

    Raises:
      ParamsError: the text is not a path.
    """
    if path == '':
        return []
    if not isinstance(path, str) or not re.fullmatch(PATH_PATTERN, path, re.DOTALL):
        raise ParamsError(f'{path!r} is not a path of Params; write one like task.layers[0].units')
    try:
        keys: list[Key] = [int(m['index']) if m['index'] else json.loads(m['key']) if m['key'] else m['name']
                           for m in _STEP.finditer(path)]
    except ValueError as error:
        raise ParamsError(f'{path!r} is not a path of Params: {error}; write one like task.reads["a key"]') from error
    if len(keys) > MAX_DEPTH:
        raise ParamsError(f'a path has {len(keys)} steps; use at most {MAX_DEPTH}: {path[:100]}...')
    return keys


def join_path(path: str, key: Key) -> str:
    """The path of what `key` names inside the value at `path`."""
    if isinstance(key, int):
        return f'{path}[{key}]'
    if re.fullmatch(r'\w+', key):
        return f'{path}.{key}' if path else key
    return f'{path}[{json.dumps(key, ensure_ascii=False)}]'


def element(value: Any, key: Key, path: str) -> Any:
    """`value[key]` for a tuple or dict at `path`, or an error that says what can be asked there."""
    where = join_path(path, key)
    if isinstance(value, tuple):
        if isinstance(key, int) and key < len(value):
            return value[key]
        rule = f'use [0] to [{len(value) - 1}]' if value else 'it is empty'
        raise UnknownParamError(f'{where} does not exist: {path} is a tuple of {len(value)} items; {rule}', where)
    if isinstance(value, dict):
        if isinstance(key, str) and key in value:
            return value[key]
        raise UnknownParamError(f'{where} does not exist: {path} is a dict; {nearest(key, value)}', where)
    raise UnknownParamError(f'{where} does not exist: {path} is {show(value)}, which has no parts; set {path} itself', where)


def replaced(value: Any, keys: list[Key], new: Any, path: str) -> Any:
    """A copy of the tuple or dict at `path` with `new` at `keys`; the last key of a dict may be new."""
    if not keys:
        return new
    key, rest = keys[0], keys[1:]
    is_new_entry = isinstance(value, dict) and isinstance(key, str) and not rest
    inner = replaced(None if is_new_entry else element(value, key, path), rest, new, join_path(path, key))
    if isinstance(value, dict):
        return {**value, key: inner}
    return tuple(inner if i == key else v for i, v in enumerate(value))
