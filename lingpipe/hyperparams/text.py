"""The text of Params: the class, then one line `path : value` for every value; and a table for people to read."""
from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from lingpipe.hyperparams.class_names import class_name, find_class
from lingpipe.hyperparams.errors import ParamsError, shortened, show
from lingpipe.hyperparams.field_types import type_name
from lingpipe.hyperparams.paths import PATH_PATTERN, Key, join_path, split_path
from lingpipe.hyperparams.tree import Tree
from lingpipe.hyperparams.value_text import read, write

# Writing.

def lines(path: str, value: Any) -> Iterator[str]:
    """The lines of the value at a path; equal values have equal lines."""
    before = f'{path} : ' if path else ''
    if isinstance(value, Tree):
        yield before + class_name(type(value))
        value = value._values()
    elif is_plain(value):
        yield before + write(value)
        return
    for key, v in value.items() if isinstance(value, dict) else enumerate(value):
        yield from lines(join_path(path, key), v)


def is_plain(value: Any) -> bool:
    """Whether its text is one line."""
    return all(map(is_plain, value)) if isinstance(value, tuple) else not (isinstance(value, Tree) or isinstance(value, dict) and value)


def table(tree: Tree) -> str:
    """A table of all fields: path, type, value, description."""
    rows = [('field', 'type', 'value', 'description')]
    for path, p in tree.walk():
        for name, f in p._fields().items():
            full = f'{path}.{name}' if path else name
            rows.append((full, type_name(f.type), shortened(_summary(vars(p)[name])), f.doc))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return '\n'.join('  '.join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[3]]).rstrip() for row in rows) + '\n'


def _summary(value: Any) -> str:
    if isinstance(value, Tree):
        return class_name(type(value))
    return write(value) if is_plain(value) else f'{len(value)} items'


# Reading.

def built(text: str) -> tuple[Tree, int]:
    """The Params of a whole text, and the number of the line that names their class.

    Raises:
      ParamsError: a wrong line, named by its number.
    """
    root, line_of = _parsed(text)
    try:
        return _value_of(root, ''), line_of['']
    except ParamsError as error:
        path = error.path
        while path not in line_of:
            path = path[:-1]
        raise type(error)(f'line {line_of[path]}: {error}', error.path) from error


class _Node:
    """One path of a text: the text after ':', if it has a line, and what is below it."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.below: dict[Key, _Node] = {}


def _parsed(text: str) -> tuple[_Node, dict[str, int]]:
    """The tree of the paths of a whole text, and the line number of each path. The root's text is its class.

    Raises:
      ParamsError: a line that is not `path : value`, or a path that is there twice; it names the line.
    """
    root, line_of = _Node(), {'': 1}
    for number, line in enumerate(text.split('\n'), 1):
        line = line.strip()
        if not line or line.startswith('#'):
            continue
        if root.text is None:
            root.text, line_of[''] = line, number
            continue
        parts = re.fullmatch(rf'({PATH_PATTERN})\s*:\s*(.*)', line, re.DOTALL)
        if not parts:
            raise ParamsError(f'line {number}: {show(line)} is not a line of Params; write path : value')
        try:
            keys = split_path(parts[1])
        except ParamsError as error:
            raise ParamsError(f'line {number}: {error}') from error
        node, path = root, ''
        for key in keys:
            node, path = node.below.setdefault(key, _Node()), join_path(path, key)
            line_of.setdefault(path, number)
        if node.text is not None:
            raise ParamsError(f'line {number}: {path} is here a second time, after line {line_of[path]}; keep one of them')
        node.text, line_of[path] = parts[2], number
    if root.text is None:
        raise ParamsError('line 1: the text is empty; its first line is a class, package.module:Class')
    return root, line_of


def _value_of(node: _Node, path: str) -> Any:
    """The value of a node for `convert`. Params are made at once, as their class tells the types below."""
    if node.text is not None and path and not node.below:
        try:
            return read(node.text, is_by_person=False)
        except ParamsError as error:
            raise ParamsError(f'{path}: {error}', path) from error
    if node.text is not None:
        params = find_class(node.text, path, is_by_person=False)()._place(None, path)
        for key, below in node.below.items():
            if key not in params._fields():
                raise params._unknown(key)
            params._put(str(key), _value_of(below, join_path(path, key)))
        return params
    values = {key: _value_of(below, join_path(path, key)) for key, below in node.below.items()}
    if list(values) == list(range(len(values))):
        return list(values.values())
    if all(isinstance(key, str) for key in values):
        return values
    raise ParamsError(f'{path} lists the items {", ".join(map(str, values))}; number them from 0, in order', path)
