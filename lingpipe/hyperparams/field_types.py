"""The types of fields: which there are, and how a value becomes one of them."""
from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable
from typing import Any, Literal, NoReturn, Union

from lingpipe.hyperparams.errors import ParamsError, nearest, show
from lingpipe.hyperparams.paths import join_path
from lingpipe.hyperparams.value_text import Word, write


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
    if isinstance(value, Word) and value.is_by_person and value.text[:1] not in ('"', "'"):
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
                value = tp._from_word(value.text, where, is_by_person=value.is_by_person)
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
