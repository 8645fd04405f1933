"""The values of Params: their types, their paths and their text. `hyperparams` builds Params on it.

Text is read in two steps, because `1` is an int in one field and a string in another: `read` gives
lists, dicts, quoted strings and `Word`s (text that is not decided yet), and `convert` decides by the
field's type. Nothing is ever given to `eval`.

    path    name, then any of  .name  [17]  ["any key"]       task.layers[17].reads["a.b"]
    value   true  none  3  1e-3  nan  "text"  [1, 2]  {"a": 1}  package.module:Class
"""
from __future__ import annotations

import difflib
import json
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NoReturn, Union

Key = str | int   # one step of a path: a field, a dict's key or a tuple's index

PATH_PATTERN = r'\w+(?:\.\w+|\[\d+\]|\["(?:[^"\\]|\\.)*"\])*'
_STEP = re.compile(r'\.?(?P<name>\w+)|\[(?P<index>\d+)\]|\[(?P<key>"(?:[^"\\]|\\.)*")\]')
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|' r"'(?:[^'\\]|\\.)*'", re.DOTALL)
_MAX_DEPTH = 50


class ParamsError(ValueError):
    """A mistake in Params or in their text; the message names the whole path from the root."""

    def __init__(self, message: str, path: str = ''):
        super().__init__(message)
        self.path = path


class UnknownParamError(ParamsError, AttributeError):
    """A name that is no field, entry or item."""


class Entries(dict):
    """The value of a dict field: sorted by key and read-only, so that every write is checked."""

    def __init__(self, items: dict[str, Any]):
        super().__init__(sorted(items.items()))

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ParamsError("a dict in Params is read-only; set an entry by its path, p['field.key'] = value, "
                          'or assign a new dict to the field')

    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return Entries, (dict(self),)


def nearest(name: Any, names: Iterable[Any], has: str = 'it has') -> str:
    """The end of an error about a wrong name: the nearest right one, or all of them."""
    known = [str(n) for n in names]
    near = difflib.get_close_matches(str(name), known, 1)
    return f'did you mean {near[0]!r}?' if near else f'{has} {", ".join(known) or "none"}'


# Paths.

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
    if len(keys) > _MAX_DEPTH:
        raise ParamsError(f'a path has {len(keys)} steps; use at most {_MAX_DEPTH}: {path[:100]}...')
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


# Types.

class Word:
    """Text whose type is not decided yet. `is_bare_string` says that it may become a string without quotes."""

    def __init__(self, text: str, is_bare_string: bool):
        self.text, self.is_bare_string = text, is_bare_string

    def __repr__(self) -> str:
        return self.text


def type_name(tp: Any) -> str:
    """A type as its author would write it, without module names."""
    origin, args = typing.get_origin(tp), typing.get_args(tp)
    if tp is types.NoneType:
        return 'None'
    if tp is Ellipsis:
        return '...'
    if origin is Literal:
        return f'Literal[{", ".join(map(repr, args))}]'
    if origin in (Union, types.UnionType):
        return ' | '.join(map(type_name, args))
    if origin is not None:
        return f'{origin.__name__}[{", ".join(map(type_name, args))}]'
    return tp.__qualname__ if isinstance(tp, type) else str(tp)


def check_type(tp: Any, where: str) -> None:
    """Raises ParamsError if a field cannot have this type."""
    origin, args = typing.get_origin(tp), typing.get_args(tp)
    if origin is Literal:
        is_known = all(type(a) in (str, int, bool, types.NoneType) for a in args)
    elif origin is dict and args[0] is not str:
        is_known = False
    elif origin in (Union, types.UnionType, tuple, dict):
        is_known = True
        for arg in args[1:] if origin is dict else args:
            if not (origin is tuple and arg is Ellipsis):
                check_type(arg, where)
    else:
        is_known = tp in _SCALARS or isinstance(tp, type) and hasattr(tp, '_from_word')
    if not is_known:
        raise ParamsError(f'{where} has the type {type_name(tp)}, which Params cannot hold; use bool, int, float, str, '
                          'Literal[...], tuple[T, ...], dict[str, T], a Params class, or a union of these with | (or None)', where)


def _to_bool(value: Any) -> bool:
    if isinstance(value, Word):
        return {'true': True, 'false': False}[value.text.lower()]
    return value if isinstance(value, bool) else _no()


def _to_int(value: Any) -> int:
    if isinstance(value, Word):
        return int(value.text)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else _no()


def _to_float(value: Any) -> float:
    if isinstance(value, Word):
        return float(value.text)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else _no()


def _to_str(value: Any) -> str:
    if isinstance(value, Word) and value.is_bare_string and value.text[:1] not in ('"', "'"):
        return value.text
    text = str.__str__(value) if isinstance(value, str) else _no()
    text.encode()   # a lone surrogate could not be saved; UnicodeEncodeError is a ValueError
    return text


def _to_none(value: Any) -> None:
    if not (value is None or isinstance(value, Word) and value.text.lower() in ('none', 'null')):
        _no()


def _no() -> NoReturn:
    raise TypeError


_SCALARS: dict[Any, Callable[[Any], Any]] = {types.NoneType: _to_none, bool: _to_bool, int: _to_int, float: _to_float, str: _to_str}
# A union takes the first member that fits, in this order: 3 is an int before a float, and anything before a str.
_UNION_ORDER = [types.NoneType, bool, int, float, Literal, None, tuple, dict, str]


def convert(value: Any, tp: Any, where: str) -> Any:
    """`value` as the type `tp` stores it: lists as tuples, ints as floats, NumPy scalars as Python's, Words decided.

    Raises:
      ParamsError: it does not fit; the message begins with the path `where`.
    """
    numpy = sys.modules.get('numpy')   # never imported here: a NumPy scalar cannot exist without it
    if numpy is not None and isinstance(value, numpy.generic):
        value = value.item()
    origin, args = typing.get_origin(tp), typing.get_args(tp)
    try:
        if origin in (Union, types.UnionType):
            return _convert_union(value, args, where)
        if origin is Literal:
            return _convert_literal(value, args)
        if origin is tuple and isinstance(value, (list, tuple)):
            item_types = [args[0]] * len(value) if args[1:] == (...,) else list(args)
            if len(item_types) == len(value):
                return tuple(convert(v, t, join_path(where, i)) for i, (v, t) in enumerate(zip(value, item_types, strict=True)))
        elif origin is dict and isinstance(value, dict):
            keys = [_to_str(key) for key in value]
            return Entries({k: convert(v, args[1], join_path(where, k)) for k, v in zip(keys, value.values(), strict=True)})
        elif tp in _SCALARS:
            return _SCALARS[tp](value)
        elif origin is None:   # a Params class
            if isinstance(value, Word):
                value = tp._from_word(value.text, where)
            if isinstance(value, tp):
                return value
    except ParamsError:
        raise
    except (TypeError, KeyError, ValueError, OverflowError):
        pass
    raise ParamsError(f'{where}={show(value)} {_rule(value, tp)}', where)


def _convert_literal(value: Any, args: tuple[Any, ...]) -> Any:
    for arg in args:
        try:
            if _SCALARS[type(arg)](value) == arg:
                return arg
        except (TypeError, KeyError, ValueError):
            continue
    _no()


def _convert_union(value: Any, args: tuple[Any, ...], where: str) -> Any:
    def order(tp: Any) -> int:
        kind = typing.get_origin(tp) or tp
        return _UNION_ORDER.index(kind if kind in _UNION_ORDER else None)

    errors = []
    for tp in sorted(args, key=order):
        try:
            return convert(value, tp, where)
        except ParamsError as error:
            errors.append((error, tp))
    rest = [error for error, tp in errors if tp is not types.NoneType]
    parts = [error for error in rest if error.path != where]   # about one item of a tuple or dict: it says more
    if parts or len(rest) == 1:
        raise (parts or rest)[0]
    _no()


def _rule(value: Any, tp: Any) -> str:
    """The rest of an error about a value that does not fit a type."""
    name = type_name(tp)
    if typing.get_origin(tp) is Literal:
        return f'is not one of {", ".join(map(write, typing.get_args(tp)))}; {nearest(value, typing.get_args(tp), "use one of")}'
    if isinstance(value, type):
        return f'is a class, not a value of type {name}; make an object of its Params with ()'
    if tp is str and isinstance(value, str):
        return 'holds a lone surrogate, which no text file can; remove it'
    found = '' if isinstance(value, Word) else f'of type {type_name(type(value))}, '
    return f'is {found}not {"" if found else "of type "}{name}; give a value of type {name}'


def show(value: Any) -> str:
    """A value in an error: its repr, cut short."""
    text = type_name(value) if isinstance(value, type) else repr(value)
    return text if len(text) <= 80 else text[:77] + '...'


# Text.

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


def read(text: str, is_bare_string: bool) -> Any:
    """Lists, dicts, strings and Words of one value's text. `is_bare_string`: strings need no quotes.

    Raises:
      ParamsError: brackets or quotes that do not close, or text after the value.
    """
    reader = _Reader(text, is_bare_string)
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

    def __init__(self, text: str, is_bare_string: bool):
        self.text, self.at, self.is_bare_string = text, 0, is_bare_string

    def skip_spaces(self) -> None:
        while self.text[self.at:self.at + 1].isspace():
            self.at += 1

    def value(self, stop: str, depth: int) -> Any:
        """One value; a Word ends at any character of `stop`."""
        self.skip_spaces()
        first = self.text[self.at:self.at + 1]
        if first and first in '[({':
            if depth >= _MAX_DEPTH:   # also the depth of a key, which is no list
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
        return Word(word, self.is_bare_string)

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
                key = str(self.value(':}', _MAX_DEPTH))
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


class Node:
    """One path of a text: the text after ':', if it has a line, and what is below it."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.below: dict[Key, Node] = {}


def parse(text: str) -> tuple[Node, dict[str, int]]:
    """The tree of the paths of a whole text, and the line number of each path. The root's text is its class.

    Raises:
      ParamsError: a line that is not `path : value`, or a path that is there twice; it names the line.
    """
    root, line_of = Node(), {'': 1}
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
            node, path = node.below.setdefault(key, Node()), join_path(path, key)
            line_of.setdefault(path, number)
        if node.text is not None:
            raise ParamsError(f'line {number}: {path} is here a second time, after line {line_of[path]}; keep one of them')
        node.text, line_of[path] = parts[2], number
    if root.text is None:
        raise ParamsError('line 1: the text is empty; its first line is a class, package.module:Class')
    return root, line_of
