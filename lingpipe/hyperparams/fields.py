"""The fields of a Params class: declared by `field`, with a type from the annotation."""
from __future__ import annotations

import sys
import types
import typing
from typing import Any

from lingpipe.hyperparams.errors import ParamsError
from lingpipe.hyperparams.field_types import check_type, convert


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
    type: Any = None


def field(default: Any, doc: str = '') -> Any:
    """Declares a field in a Params class: `name: type = field(default, 'What it means, with its unit.')`.

    A subclass may give an inherited field another default with `name = field(default)`.
    """
    return Field(default, doc)


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
        fields[name] = value._replace(doc=value.doc or old.doc)
    return fields


def resolved(cls: type) -> dict[str, Field]:
    """All fields of `cls`, with their types and with defaults of these types.

    Raises:
      ParamsError: an annotation that names nothing, a type that Params cannot hold, or a default that is not of it.
    """
    table: dict[str, Field] = {}
    for base in reversed(cls.__mro__):
        own = vars(base).get('_declared', {})
        hints = _types_of(base, own)
        for name, f in own.items():
            tp = hints[name] if name in hints else table[name].type
            where = f'{base.__qualname__}.{name}'
            check_type(tp, where)
            table[name] = Field(f.default if f.default is REQUIRED else convert(f.default, tp, where), f.doc, tp)
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
