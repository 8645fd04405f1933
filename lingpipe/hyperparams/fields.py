"""The fields of a Params class: declared by `field`, with a type from the annotation.

Also what the values of fields are made of: their parts, their lines in a text, and what differs
between two of them.
"""
from __future__ import annotations

import enum
import functools
import inspect
import sys
from collections.abc import Iterator
from types import NoneType
from typing import Any, NamedTuple, get_args

from lingpipe.hyperparams.class_names import Owned, class_name
from lingpipe.hyperparams.field_types import can_hold, convert, holds_numbers, type_name
from lingpipe.hyperparams.paths import ParamsError, join_path
from lingpipe.hyperparams.text import Written, write
from lingpipe.wording.bounds import Bounds
from lingpipe.wording.values import show


class _Mark(enum.Enum):
    """Stands for no value. An enumeration, so that there is one of each, also after pickling."""
    REQUIRED = enum.auto()
    ABSENT = enum.auto()

    def __repr__(self) -> str:
        return self.name


REQUIRED: Any = _Mark.REQUIRED  # A field that must be set before instantiate().
ABSENT: Any = _Mark.ABSENT  # In diff(): one side has no such item.


class Field(NamedTuple):
    """A declared field. `fields_of` completes it by the type and by what it inherits."""
    default: Any
    doc: str
    bounds: Bounds = Bounds()
    type: Any = None

    def converted(self, value: object, where: str) -> Any:
        """The value as this field stores it, or a ParamsError about the path `where`."""
        if value is REQUIRED or isinstance(value, Written) and value.text == 'REQUIRED':
            return REQUIRED
        converted = convert(value, self.type, where)
        self._check_numbers(converted, self.type, where)
        return converted

    def _check_numbers(self, value: object, tp: Any, where: str) -> None:
        """Raises ParamsError if a number in `value`, which has the type `tp`, is out of bounds."""
        if isinstance(value, (tuple, dict)):
            for key, item in parts(value).items():
                self._check_numbers(item, None, join_path(where, key))
        elif violation := self.bounds.violation(value):
            rule = violation[1] + (', or none' if NoneType in get_args(tp) else '')
            raise ParamsError(f'{where}={show(value)} is {violation[0]}; use {rule}', where)


def field(default: Any, doc: str = '', *, least: float | None = None, most: float | None = None,
          above: float | None = None, below: float | None = None, is_finite: bool = True) -> Any:
    """Declares a field: `name: type = field(default, 'What it means, with its unit.')`.

    Every number in a value, in tuples and dicts too, must lie from `least` to `most`, above `above`
    and below `below`, and be finite unless `is_finite` is False:
    `rate: float = field(0.1, 'Probability of a zero.', least=0, below=1)`.

    A subclass may give an inherited field another default with `name = field(default)`; the bounds
    stay unless it names some.
    """
    return Field(default, doc, Bounds(least, most, above, below, is_finite))


def check_fields(cls: type) -> None:
    """Raises ParamsError if a field that a class itself declares cannot work."""
    def error(name: str, problem: str) -> ParamsError:
        return ParamsError(f'{cls.__qualname__}.{name} {problem}')

    notes = inspect.get_annotations(cls)
    for name, note in notes.items():
        if not isinstance(vars(cls).get(name), Field) and 'ClassVar' not in str(note):
            raise error(name, f"is no field; write {name}: {note} = field(default, 'description')")

    for name, new in vars(cls).items():
        above = getattr(super(cls, cls), name, ABSENT)
        if not isinstance(new, Field):
            if isinstance(above, Field):
                raise error(name, f'would hide an inherited field; write {name} = field(...) or '
                                  'rename it')
        elif name.startswith('_') or not (above is ABSENT or isinstance(above, Field)):
            raise error(name, 'cannot be a field: the name is taken or private; rename it')
        elif above is ABSENT and not (new.doc and name in notes):
            raise error(name, 'lacks a type or a description; '
                              f"write {name}: type = field(default, 'description')")


def fields_of(params: Owned | type[Owned]) -> dict[str, Field]:
    """All fields of Params or of their class, by name, with their types."""
    cls: type = params if isinstance(params, type) else type(params)
    return _fields_of(cls)


@functools.cache  # At first use, since a type may be defined after the class.
def _fields_of(cls: type) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    for base in reversed(cls.__mro__):
        own = {name: f for name, f in vars(base).items() if isinstance(f, Field)}
        types = _annotated_types(base) if own else {}
        for name, f in own.items():
            where = f'{base.__qualname__}.{name}'
            above = fields.get(name, f)
            bounds = above.bounds if f.bounds == Bounds() else f.bounds
            f = Field(f.default, f.doc or above.doc, bounds, types.get(name, above.type))
            if not can_hold(f.type):
                raise ParamsError(
                    f'{where} has the type {type_name(f.type)}, which Params cannot hold; use '
                    'bool, int, float, str, Literal[...], tuple[T, ...], dict[str, T], a Params '
                    'class, or a union of these with | (or None)', where)
            if bounds != Bounds() and not holds_numbers(f.type):
                raise ParamsError(f'{where} has bounds, but no number in its type '
                                  f'{type_name(f.type)}; leave the bounds out', where)
            fields[name] = f._replace(default=f.converted(f.default, where))
    return fields


def parts(value: object) -> dict[Any, Any]:
    """What a value is made of: fields by name, entries by key, items by index; {} for a scalar."""
    if isinstance(value, Owned):
        values = vars(value)
        return {name: values[name] for name in fields_of(value)}
    if isinstance(value, tuple):
        return dict(enumerate(value))
    return dict(value) if isinstance(value, dict) else {}


def diff(a: object, b: object, path: str = '') -> list[tuple[str, Any, Any]]:
    """(path, value in a, value in b) of all that differs.

    A change of class is one difference, whose values are the two Params.
    """
    if type(a) is type(b) and not (_is_plain(a) and _is_plain(b)):
        parts_a, parts_b = parts(a), parts(b)
        return [difference for key in parts_a | parts_b for difference in diff(
            parts_a.get(key, ABSENT), parts_b.get(key, ABSENT), join_path(path, key))]
    return [] if type(a) is type(b) and write(a) == write(b) else [(path, a, b)]


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


def _is_plain(value: object) -> bool:
    """Whether the text of a value is one line."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return not (isinstance(value, Owned) or isinstance(value, dict) and value)


def _annotated_types(cls: type) -> dict[str, Any]:
    """The types that the annotations of `cls` itself name."""
    module = sys.modules.get(cls.__module__)
    scopes: list[object] = [vars(cls).get('owner'), module]
    for name in cls.__qualname__.split('.')[:-1]:
        scopes.append(getattr(scopes[-1], name, None))
    names: dict[str, Any] = {}
    # The module's names come last: `Params` in a nested class is not that class itself.
    for scope in [*scopes, module]:
        names |= getattr(scope, '__dict__', {})
    try:
        return inspect.get_annotations(cls, locals=names, eval_str=True)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise ParamsError(f'the types of {cls.__qualname__} cannot be resolved: {error}; '
                          'use names of its module or of the classes around it') from error
