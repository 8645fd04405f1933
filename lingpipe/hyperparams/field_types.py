"""The types of fields: which there are, and how a value becomes one of them."""
from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin

from lingpipe.hyperparams.class_names import class_like, find_class, is_params_class
from lingpipe.hyperparams.paths import ParamsError, join_path
from lingpipe.hyperparams.text import Written, read, write
from lingpipe.wording.keras_words import remedy_for
from lingpipe.wording.values import nearest, show

_SCALARS = (NoneType, bool, int, float, str)
_UNIONS = (Union, UnionType)
_FROM_WORD: dict[type, Callable[[str], Any]] = {
    NoneType: {'none': None, 'null': None}.__getitem__, int: int, float: float,
    bool: {'true': True, 'false': False}.__getitem__}
_NO_NAME = re.compile(r'[-+.\d[({"\']')  # How a text begins that names no class.


class Entries(dict[str, Any]):
    """The value of a dict field: sorted by key and read-only, so that every write is checked."""

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        raise ParamsError('a dict in Params is read-only; set an entry by its path, '
                          "p['field.key'] = value, or assign a new dict to the field")

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = setdefault = pop = popitem = clear = _refuse

    def __reduce__(self) -> tuple[type[Entries], tuple[dict[str, Any]]]:
        return Entries, (dict(self),)


def type_name(tp: Any) -> str:
    """A type as its author would write it."""
    if get_origin(tp) in _UNIONS:
        return ' | '.join(map(type_name, get_args(tp)))
    if get_args(tp):
        return str(tp).removeprefix('typing.')
    return 'None' if tp is NoneType else getattr(tp, '__qualname__', str(tp))


def can_hold(tp: Any) -> bool:
    """Whether a field can have this type."""
    origin, args = get_origin(tp), get_args(tp)
    if origin is Literal:
        return {type(arg) for arg in args} <= {NoneType, bool, int, str}
    if origin in _UNIONS or origin is tuple or origin is dict and args[0] is str:
        return all(arg is Ellipsis or can_hold(arg) for arg in args)
    return tp in _SCALARS or is_params_class(tp)


def holds_numbers(tp: Any) -> bool:
    """Whether a value of this type may be or hold a number."""
    return tp in (int, float) or any(map(holds_numbers, get_args(tp)))


def convert(value: object, tp: Any, where: str) -> Any:
    """The value as a field of the type `tp` stores it, or a ParamsError about the path `where`.

    Lists become tuples, ints become floats where these are asked for, NumPy's scalars become
    Python's, and what is Written is read. Of a union, the first type that the value fits counts.
    """
    numpy = sys.modules.get('numpy')  # Without it, there is no NumPy scalar: it is not imported.
    if numpy is not None and isinstance(value, numpy.generic):
        value = value.item()
    members = [tp]
    if tp not in _SCALARS and get_origin(tp) in _UNIONS:  # Where it may be an int, 3 is no float.
        members = sorted(get_args(tp), key=lambda member: (member is str, member is float))

    errors = []  # About parts of the value, which say more than one about all of it.
    for member in members:
        try:
            return _fitted(value, member, where)
        except ParamsError as error:
            errors.append(error)
        except (TypeError, KeyError, ValueError, OverflowError):
            pass
    if errors:
        raise errors[0]
    if isinstance(value, Written):
        value = read(value, where)

    # That a word is no list, and no None, says less than why it is none of the rest.
    unlikely = (tuple, dict) if isinstance(value, (str, Written)) else ()
    likely = [m for m in members if m is not NoneType and get_origin(m) not in unlikely]
    rule = _rule(value, likely[0] if len(likely) == 1 else tp)
    raise ParamsError(f'{where}={show(value)} {rule}', where)


def _fitted(value: object, tp: Any, where: str) -> object:
    """The value in a type that is no union.

    It raises ParamsError if a part of the value does not fit, and any other error if all does not.
    """
    if tp in _SCALARS:
        return _fitted_to_scalar(value, tp, where)
    origin, args = get_origin(tp), get_args(tp)
    if origin is Literal:
        for choice in args:
            with contextlib.suppress(ParamsError):
                if convert(value, type(choice), where) == choice:
                    return choice

    if isinstance(value, Written) and origin in (tuple, dict):
        is_bare = ',' in value.text and not value.text.startswith(('[', '('))
        if value.is_by_person and origin is tuple and is_bare:
            value = Written(f'[{value.text}]', is_by_person=True)  # A person's 1,2 is [1, 2].
        value = read(value, where)
    if origin is tuple and isinstance(value, (list, tuple)):
        types = [args[0]] * len(value) if args[1:] == (...,) else args
        items = enumerate(list(zip(value, types, strict=True)))
        return tuple(convert(item, of, join_path(where, i)) for i, (item, of) in items)
    if origin is dict and isinstance(value, dict):
        by_key = {_fitted_to_scalar(key, str, where): value[key] for key in sorted(value)}
        return Entries({k: convert(v, args[1], join_path(where, k)) for k, v in by_key.items()})

    if origin is None and isinstance(value, tp):
        return value
    if is_params_class(tp) and isinstance(value, Written) and not _NO_NAME.match(value.text):
        return convert(find_class(value, where, tp)(), tp, where)
    raise TypeError


def _fitted_to_scalar(value: object, tp: type, where: str) -> Any:
    """The value as a str, int, float, bool or None; raises as `_fitted` does."""
    if isinstance(value, Written) and tp is str:
        if value.is_by_person and not value.text.startswith(('"', "'")):
            return value.text
        value = read(value, where)
    if isinstance(value, Written):
        return _FROM_WORD[tp](value.text.lower())
    if isinstance(value, (int, float) if tp is float else tp):
        if isinstance(value, str):
            value.encode()  # UnicodeEncodeError, a ValueError, if no file can hold it.
            return str.__str__(value)
        if isinstance(value, bool) == (tp is bool):
            return None if value is None else tp(value)
    raise TypeError


def _rule(value: object, tp: Any) -> str:
    """The rest of an error about a value that does not fit a type."""
    name, kind = type_name(tp), type_name(type(value))
    if get_origin(tp) is Literal:
        return (f'is not one of {", ".join(map(write, get_args(tp)))}; '
                f'{nearest(value, get_args(tp), "use one of")}')
    if isinstance(value, type):
        return f'is a class, not a value of type {name}; make an object of its Params with ()'
    if tp is str and isinstance(value, str):
        return 'holds a lone surrogate, which no text file can; remove it'
    if get_origin(tp) is tuple and get_args(tp)[1:] == (...,):
        with contextlib.suppress(ParamsError):
            convert(value, get_args(tp)[0], '')
            return f'is one item, not {name}; put it into brackets: [{show(value)}]'

    remedy = f'give a value of type {name}'
    if is_params_class(tp):
        like = class_like(value if isinstance(value, str) else kind, tp)  # 'adam', Keras' Adam
        example = f'{remedy}, as {tp.written_as}' if tp.written_as else remedy
        remedy = (f'write {like.__qualname__}() of {like.__module__}' if like
                  else remedy_for(value) or example)
    is_other = 'is not of type' if isinstance(value, Written) else f'is of type {kind}, not'
    return f'{is_other} {name}; {remedy}'
