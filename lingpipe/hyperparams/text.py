"""The text of Params: the class, then one line `path : value` for every value; and differences."""
from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any, TypeVar

from lingpipe.hyperparams.class_names import class_name, find_class
from lingpipe.hyperparams.fields import ABSENT
from lingpipe.hyperparams.paths import PATH_PATTERN, Key, ParamsError, join_path, split_path
from lingpipe.hyperparams.tree import Tree, fields_of, is_plain, parts, unknown, with_path
from lingpipe.hyperparams.value_text import Word, read, write
from lingpipe.wording.values import show

T = TypeVar('T', bound=Tree)


def lines(value: object, path: str = '') -> Iterator[str]:
    """The lines of the value at a path; values are equal if and only if their lines are."""
    before = f'{path} : ' if path else ''
    if isinstance(value, Tree):
        yield before + class_name(type(value))
    elif is_plain(value):
        yield before + write(value)
        return
    for key, part in parts(value).items():
        yield from lines(part, join_path(path, key))


def diff(a: object, b: object, path: str = '') -> list[tuple[str, Any, Any]]:
    """(path, value in a, value in b) of all that differs.

    A change of class is one difference, whose values are the two Params.
    """
    if type(a) is type(b) and not (is_plain(a) and is_plain(b)):
        parts_a, parts_b = parts(a), parts(b)
        return [difference for key in parts_a | parts_b for difference in diff(
            parts_a.get(key, ABSENT), parts_b.get(key, ABSENT), join_path(path, key))]
    return [] if list(lines(a)) == list(lines(b)) else [(path, a, b)]


@dataclasses.dataclass
class _Node:
    """A path in a text: what stands after ':', unless it has no line, and what is below it."""
    number: int  # Of its line, or of the first line below it.
    text: str | None = None
    below: dict[Key, _Node] = dataclasses.field(default_factory=dict)


def tree_of(text: str, cls: type[T]) -> T:
    """The Params of a class that a whole text describes.

    Raises:
      ParamsError: a wrong line, named by its number.
    """
    root = _parsed(text)
    try:
        tree = _value_of(root, '')
        if not isinstance(tree, cls):
            raise ParamsError(f'found Params of {class_name(type(tree))}, not of '
                              f'{class_name(cls)}; read the text with the class that wrote it, '
                              'or with Params.from_text')
        return tree
    except ParamsError as error:
        node = root
        for key in split_path(error.path):
            if key not in node.below:
                break
            node = node.below[key]
        raise type(error)(f'line {node.number}: {error}', error.path) from error
    except RecursionError as error:
        raise ParamsError('line 1: the Params nest too deep; nest them less') from error


def _parsed(text: str) -> _Node:
    """The paths of a whole text. The root's text is its class."""
    written = [(number, line) for number, line in enumerate(map(str.strip, text.split('\n')), 1)
               if line and not line.startswith('#')]
    if not written:
        raise ParamsError('line 1: the text is empty; its first line is a class, '
                          'package.module:Class')
    root = _Node(*written[0])
    for number, line in written[1:]:
        match = re.fullmatch(rf'({PATH_PATTERN})\s*:\s*(.*)', line, re.DOTALL)
        if not match:
            raise ParamsError(f'line {number}: {show(line)} is not a line of Params; '
                              'write path : value')
        node = root
        for key in split_path(match[1]):
            node = node.below.setdefault(key, _Node(number))
        if node.text is not None:
            raise ParamsError(f'line {number}: {match[1]} is here a second time, after line '
                              f'{node.number}; keep one of them')
        node.number, node.text = number, match[2]
    return root


def _value_of(node: _Node, path: str) -> Any:
    """The value at a path, for a field to convert. Params are made here, each with its path."""
    if node.text is not None and path and not node.below:
        return read(node.text, path, is_by_person=False)
    if node.text is not None:
        tree = find_class(Word(node.text, is_by_person=False), path)()
        assert isinstance(tree, Tree)
        with_path(tree, path)
        for key, child in node.below.items():
            if key not in fields_of(tree):
                raise unknown(tree, key, path)
            setattr(tree, str(key), _value_of(child, join_path(path, key)))
        return tree

    values = {key: _value_of(child, join_path(path, key)) for key, child in node.below.items()}
    if list(values) == list(range(len(values))):
        return list(values.values())
    if all(isinstance(key, str) for key in values):
        return values
    raise ParamsError(f'{path} lists the items {", ".join(map(str, values))}; '
                      'number them from 0, in order', path)
