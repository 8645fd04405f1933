"""The fields of a Params class: declared by `field`, with a type from the annotation."""
from __future__ import annotations

import sys
import types
import typing
from typing import Any

from lingpipe.hyperparams.bounds import Bounds, holds_numbers
from lingpipe.hyperparams.errors import ParamsError
from lingpipe.hyperparams.field_types import check_type, convert, type_name


class _Mark:
    """A value that stands for no value. One object each, also after pickling."""

    def __init__(self, name: str):
        self._name = name

    def __repr__(self) -> str:
        return self._name

    def __reduce__(self) -> str:
        return self._name


REQUIRED: Any = _Mark('REQUIRED')   # a field that must be set before instantiate()
ABSENT: Any = _Mark('ABSENT')       # in diff(): one side has no such item


class Field(typing.NamedTuple):
    """A declared field; its type is None until it is resolved."""
    default: Any
    doc: str
    bounds: Bounds = Bounds()
    type: Any = None

    def converted(self, value: Any, where: str) -> Any:
        """`value` as this field stores it.

        Raises:
          ParamsError: it is not of the field's type, or out of its bounds; the message begins with the path `where`.
        """
        if value is REQUIRED:
            return value
        value = convert(value, self.type, where)
        self.bounds.check(value, self.type, where)
        return value


def field(default: Any, doc: str = '', *, least: float | None = None, most: float | None = None, above: float | None = None,
          below: float | None = None, is_finite: bool = True) -> Any:
    """Declares a field in a Params class: `name: type = field(default, 'What it means, with its unit.')`.

    Every number in a value, in tuples and dicts too, must lie from `least` to `most`, above `above` and below `below`, and be
    finite unless `is_finite` is False: `rate: float = field(0.1, 'Probability of a zero.', least=0, below=1)`.

    A subclass may give an inherited field another default with `name = field(default)`; the bounds stay unless it names some.
    """
    return Field(default, doc, Bounds(least, most, above, below, is_finite))


def declared(cls: type) -> dict[str, Field]:
    """The fields that `cls` itself declares, checked, and taken off it.

    Raises:
      ParamsError: an annotation without `field`; a name that is taken or private; no type or description.
    """
    fields = {name: value for name, value in vars(cls).items() if isinstance(value, Field)}
    inherited = {name: f for base in reversed(cls.__mro__[1:]) for name, f in vars(base).get('_declared', {}).items()}
    notes = cls.__dict__.get('__annotations__', {})
    for name, note in notes.items():
        if name not in fields and 'ClassVar' not in str(note):
            raise ParamsError(f"{cls.__qualname__}.{name} is no field; write {name}: {note} = field(default, 'description')")
    for name in inherited.keys() & vars(cls).keys() - fields.keys():
        raise ParamsError(f'{cls.__qualname__}.{name} would hide an inherited field; write {name} = field(...) or rename it')
    for name, value in fields.items():
        delattr(cls, name)
        if name.startswith('_') or hasattr(cls, name):
            raise ParamsError(f'{cls.__qualname__}.{name} cannot be a field: the name is taken or private; rename it')
        old = inherited.get(name, value)
        if not (value.doc or old.doc) or name not in inherited and name not in notes:
            raise ParamsError(f"{cls.__qualname__}.{name} lacks a type or a description; "
                              f"write {name}: type = field(default, 'description')")
        bounds = old.bounds if value.bounds == Bounds() else value.bounds
        fields[name] = value._replace(doc=value.doc or old.doc, bounds=bounds)
    return fields


def resolved(cls: type) -> dict[str, Field]:
    """All fields of `cls`, with their types and with defaults of these types and within their bounds.

    Raises:
      ParamsError: an annotation that names nothing, a type that Params cannot hold, bounds of a type without numbers, or a
        default that the field itself does not accept.
    """
    table: dict[str, Field] = {}
    for base in reversed(cls.__mro__):
        own = vars(base).get('_declared', {})
        hints = _types_of(base, own)
        for name, f in own.items():
            tp = hints[name] if name in hints else table[name].type
            where = f'{base.__qualname__}.{name}'
            check_type(tp, where)
            if f.bounds != Bounds() and not holds_numbers(tp):
                raise ParamsError(f'{where} has bounds, but no number in its type {type_name(tp)}; leave the bounds out', where)
            f = f._replace(type=tp)
            table[name] = f._replace(default=f.converted(f.default, where))
    return table


def _types_of(cls: type, declared: dict[str, Field]) -> dict[str, Any]:
    """The types of the fields that `cls` itself declares. Names are looked up in the module, then in the enclosing classes."""
    notes = {name: note for name, note in vars(cls).get('__annotations__', {}).items() if name in declared}
    module = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    names = dict(vars(cls.__dict__['owner'])) if cls.__dict__.get('owner') else {}
    scope: Any = None
    for part in cls.__qualname__.split('.')[:-1]:
        scope = vars(scope).get(part) if scope else module.get(part)
        if not isinstance(scope, type):
            break
        names.update(vars(scope))
    try:
        return typing.get_type_hints(types.SimpleNamespace(__annotations__=notes), {**names, **module})
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise ParamsError(f'the types of {cls.__qualname__} cannot be resolved: {error}; '
                          'use names of its module or of the classes around it') from error
