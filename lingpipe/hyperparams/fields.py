"""The fields of a Params class: declared by `field`, with a type from the annotation."""
from __future__ import annotations

import collections
import enum
import functools
import inspect
import sys
from typing import Any, NamedTuple, get_args

from lingpipe.hyperparams.class_names import Owned
from lingpipe.hyperparams.field_types import can_hold, convert, type_name
from lingpipe.hyperparams.paths import ParamsError, join_path
from lingpipe.hyperparams.value_text import Word
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

def holds_numbers(tp: Any) -> bool:
    """Whether a value of this type may be or hold a number."""
    return tp in (int, float) or any(map(holds_numbers, get_args(tp)))


class Field(NamedTuple):
    """A declared field; its type is None until it is resolved."""
    default: Any
    doc: str
    bounds: Bounds = Bounds()
    type: Any = None

    def converted(self, value: object, where: str) -> Any:
        """The value as this field stores it.

        Raises:
          ParamsError: it is not of the field's type, or out of its bounds; the message begins
            with the path `where`.
        """
        if value is REQUIRED or isinstance(value, Word) and value.text == 'REQUIRED':
            return REQUIRED
        converted = convert(value, self.type, where)
        self._check_numbers(converted, self.type, where)
        return converted

    def _check_numbers(self, value: object, tp: Any, where: str) -> None:
        """Raises ParamsError if a number in `value`, which has the type `tp`, is out of bounds."""
        if isinstance(value, (tuple, dict)):
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                self._check_numbers(item, None, join_path(where, key))
        elif violation := self.bounds.violation(value):
            rule = violation[1] + (', or none' if type(None) in get_args(tp) else '')
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


def declared(cls: type) -> dict[str, Field]:
    """The fields that `cls` itself declares, checked, and taken off it.

    Raises:
      ParamsError: an annotation without `field`; a name that is taken or private; no type or
        description.
    """
    def error(name: str, problem: str) -> ParamsError:
        return ParamsError(f'{cls.__qualname__}.{name} {problem}')

    own = {name: value for name, value in vars(cls).items() if isinstance(value, Field)}
    inherited = collections.ChainMap(*(vars(base).get('_declared', {}) for base in cls.__mro__))
    notes = inspect.get_annotations(cls)
    for name, note in notes.items():
        if name not in own and 'ClassVar' not in str(note):
            raise error(name, f"is no field; write {name}: {note} = field(default, 'description')")
    for name in inherited.keys() & vars(cls).keys() - own.keys():
        raise error(name, f'would hide an inherited field; write {name} = field(...) or rename it')

    for name, new in own.items():
        delattr(cls, name)
        if name.startswith('_') or hasattr(cls, name):
            raise error(name, 'cannot be a field: the name is taken or private; rename it')
        old = inherited.get(name, new)
        if not (new.doc or old.doc) or name not in inherited and name not in notes:
            raise error(name, 'lacks a type or a description; '
                              f"write {name}: type = field(default, 'description')")
        bounds = old.bounds if new.bounds == Bounds() else new.bounds
        own[name] = new._replace(doc=new.doc or old.doc, bounds=bounds)
    return own


def fields_of(params: Owned | type[Owned]) -> dict[str, Field]:
    """All fields of Params or of their class, by name, with their types.

    Raises:
      ParamsError: an annotation that names nothing, a type that Params cannot hold, bounds of a
        type without numbers, or a default that the field itself does not accept.
    """
    cls: type = params if isinstance(params, type) else type(params)
    return _resolved(cls)


@functools.cache  # At first use, since a type may be defined after the class.
def _resolved(cls: type) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    for base in reversed(cls.__mro__):
        own: dict[str, Field] = vars(base).get('_declared', {})
        types = _annotated_types(base) if own else {}
        for name, f in own.items():
            where = f'{base.__qualname__}.{name}'
            tp = types[name] if name in types else fields[name].type
            if not can_hold(tp):
                raise ParamsError(
                    f'{where} has the type {type_name(tp)}, which Params cannot hold; use bool, '
                    'int, float, str, Literal[...], tuple[T, ...], dict[str, T], a Params class, '
                    'or a union of these with | (or None)', where)
            if f.bounds != Bounds() and not holds_numbers(tp):
                raise ParamsError(f'{where} has bounds, but no number in its type '
                                  f'{type_name(tp)}; leave the bounds out', where)
            f = f._replace(type=tp)
            fields[name] = f._replace(default=f.converted(f.default, where))
    return fields


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
