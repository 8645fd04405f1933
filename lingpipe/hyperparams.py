"""Params: typed, nested, named values that describe an object and can make it.

    class Dense(Configurable):
        class Params(Configurable.Params):
            units: int = field(REQUIRED, 'Number of output channels.')

    layer = Dense.Params(units=3).instantiate()      # Dense(params); layer.params is frozen

Every Params knows its parent, so an error deep in an experiment names the whole path from the root.
Therefore a Params has one place only: one that has a parent already is copied when it is assigned
elsewhere. A dict in Params is read-only and sorted by key; `p['reads.x'] = ...` sets an entry.
"""
from __future__ import annotations

import importlib
import re
import sys
import types
import typing
from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar, Self

from lingpipe.params_text import (
    Entries,
    Key,
    Node,
    ParamsError,
    UnknownParamError,
    Word,
    check_type,
    convert,
    element,
    join_path,
    nearest,
    parse,
    read,
    readings,
    replaced,
    show,
    split_path,
    type_name,
    write,
)

__all__ = ['ABSENT', 'REQUIRED', 'Configurable', 'Params', 'ParamsError', 'UnknownParamError', 'diff', 'diff_text', 'field', 'path_of']


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


class _Field(typing.NamedTuple):
    default: Any
    doc: str
    type: Any = None


def field(default: Any, doc: str = '') -> Any:
    """Declares a field in a Params class: `name: type = field(default, 'What it means, with its unit.')`.

    A subclass may give an inherited field another default with `name = field(default)`.
    """
    return _Field(default, doc)


@typing.dataclass_transform(kw_only_default=True)   # field() is no specifier there: every keyword is optional until instantiate()
class Params:
    """Typed, named values; see the file's docstring. Subclasses declare fields with `field`."""

    owner: ClassVar[Any] = None           # the Configurable that these Params make
    _parent: Params | None = None         # with _key, the place in the tree: only used to name it
    _key: str = ''                        # 'units', 'layers[17]', 'reads.x'
    _frozen: bool = False

    def __init_subclass__(cls) -> None:
        declared = {name: value for name, value in vars(cls).items() if isinstance(value, _Field)}
        inherited = {name: f for base in reversed(cls.__mro__[1:]) for name, f in vars(base).get('_declared', {}).items()}
        notes = cls.__dict__.get('__annotations__', {})
        for name, note in notes.items():
            if name not in declared and 'ClassVar' not in str(note):
                raise ParamsError(f"{cls.__qualname__}.{name} is no field; write {name}: {note} = field(default, 'description')")
        for name in inherited.keys() & vars(cls).keys() - declared.keys():
            raise ParamsError(f'{cls.__qualname__}.{name} would hide an inherited field; write {name} = field(...) or rename it')
        for name, value in declared.items():
            delattr(cls, name)
            if name.startswith('_') or hasattr(cls, name):
                raise ParamsError(f'{cls.__qualname__}.{name} cannot be a field: the name is taken or private; rename it')
            old = inherited.get(name, value)
            if not (value.doc or old.doc) or name not in inherited and name not in notes:
                raise ParamsError(f"{cls.__qualname__}.{name} lacks a type or a description; "
                                  f"write {name}: type = field(default, 'description')")
            declared[name] = value._replace(doc=value.doc or old.doc)
        cls._declared = declared

    def __init__(self, **values: Any):
        for name, f in self._fields().items():
            self._hold(name, _copied(f.default))
        for name, value in values.items():
            self._put(name, value)

    # Fields.

    _declared: ClassVar[dict[str, _Field]] = {}   # this class's own
    _resolved: ClassVar[dict[str, _Field]]        # all, with their types

    @classmethod
    def _fields(cls) -> dict[str, _Field]:
        """All fields with their types, which are resolved at first use: a class may name what is defined after it."""
        if '_resolved' not in cls.__dict__:
            table: dict[str, _Field] = {}
            for base in reversed(cls.__mro__):
                declared = vars(base).get('_declared', {})
                hints = _types_of(base, declared)
                for name, f in declared.items():
                    tp = hints[name] if name in hints else table[name].type
                    where = f'{base.__qualname__}.{name}'
                    check_type(tp, where)
                    table[name] = _Field(f.default if f.default is REQUIRED else convert(f.default, tp, where), f.doc, tp)
            cls._resolved = table
        return cls._resolved

    def _put(self, name: str, value: Any) -> None:
        """Checks and stores the value of a field."""
        where = join_path(path_of(self), name)
        f = self._fields().get(name)
        if f is None:
            raise _unknown(self, name)
        if self._frozen:
            raise ParamsError(f'{where} cannot be set: these Params are frozen, as they belong to an object made from them; '
                              'change a .copy() and make another', where)
        if isinstance(value, Word) and value.text == 'REQUIRED':
            value = REQUIRED
        self._hold(name, value if value is REQUIRED else convert(value, f.type, where))

    def _hold(self, name: str, value: Any) -> None:
        """Stores a checked value. Params in it get their place here; those that have another place are copied."""
        here = {id(p): p for _, p in _nested(vars(self).get(name))}
        root = self
        while root._parent is not None:
            root = root._parent

        def placed(value: Any, key: str) -> Any:
            if isinstance(value, Params):
                is_here = here.pop(id(value), None) is not None
                if not is_here and (value._parent is not None or value._frozen or value is root):
                    value = value.copy()
                return value._place(self, key)
            if isinstance(value, tuple):
                return tuple(placed(v, join_path(key, i)) for i, v in enumerate(value))
            return Entries({k: placed(v, join_path(key, k)) for k, v in value.items()}) if isinstance(value, dict) else value

        vars(self)[name] = placed(value, name)
        for gone in here.values():
            gone._place(None, '')

    def _place(self, parent: Params | None, key: str) -> Self:
        vars(self).update(_parent=parent, _key=key)
        return self

    def _get(self, keys: list[Key]) -> Any:
        value: Any = self
        where = path_of(self)
        for key in keys:
            if not isinstance(value, Params):
                value = element(value, key, where)
            elif key in value._fields():
                value = vars(value)[key]   # type: ignore[index]
            else:
                raise _unknown(value, key)
            where = join_path(where, key)
        return value

    def _values(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in self._fields()}

    if not TYPE_CHECKING:   # a type checker would take any name for right
        def __getattr__(self, name: str) -> Any:
            raise _unknown(self, name)

        def __setattr__(self, name: str, value: Any) -> None:
            self._put(name, value)

        def __delattr__(self, name: str) -> None:
            raise ParamsError(f'{join_path(path_of(self), name)} cannot be deleted; set it to REQUIRED or to its default')

    # Use.

    def __getitem__(self, path: str) -> Any:
        """The value at a path: p['task.layers[17].units'], p['reads.x']; p[''] is p."""
        return self._get(split_path(path))

    def __setitem__(self, path: str, value: Any) -> None:
        keys = split_path(path)
        if not keys:
            raise ParamsError("the path '' names these Params themselves and cannot be set; name a field")
        holders = [(i, p) for i in range(len(keys)) if isinstance(p := self._get(keys[:i]), Params)]
        at, holder = holders[-1]
        if isinstance(keys[at], int):
            raise _unknown(holder, keys[at])
        name, *inner = keys[at:]
        where = join_path(path_of(holder), name)
        holder._put(str(name), replaced(holder._get([name]), inner, value, where) if inner else value)

    def __contains__(self, path: str) -> bool:
        try:
            self[path]
        except ParamsError:
            return False
        return True

    def set(self, **values: Any) -> Self:
        """Sets fields by name or path, `p.set(**{'learner.lr': 1})`, and returns p."""
        for path, value in values.items():
            self[path] = value
        return self

    def override(self, path: str, text: str) -> Self:
        """Sets the value at a path from a person's text, read by the field's type: `--set path=text`."""
        first_error: ParamsError | None = None
        for reading in readings(text):
            try:
                self[path] = reading()
                return self
            except ParamsError as error:
                where = '.'.join(filter(None, [path_of(self), path]))
                first_error = first_error or (error if error.path else ParamsError(f'{where}: {error}', where))
        assert first_error is not None
        raise first_error

    def copy(self) -> Self:
        """A deep copy, not frozen, with no parent."""
        new = object.__new__(type(self))
        for name, value in self._values().items():
            new._hold(name, _copied(value))
        return new

    __copy__ = copy

    def freeze(self) -> Self:
        """Refuses every later write, here and in all nested Params; returns p."""
        for _, p in self.walk():
            vars(p)['_frozen'] = True
        return self

    @property
    def is_frozen(self) -> bool:
        return self._frozen

    def walk(self) -> Iterator[tuple[str, Params]]:
        """(path, params) of these Params, whose path is '', and of all that are nested in them."""
        yield '', self
        for name, value in self._values().items():
            for path, child in _nested(value, name):
                yield from ((path + ('.' if inner else '') + inner, p) for inner, p in child.walk())

    def check(self) -> None:
        """For subclasses: raises ValueError if the values do not go together. Called before an object is made."""

    def validate(self) -> Self:
        """Raises ParamsError unless all REQUIRED are set and every check() in the tree passes; returns p."""
        missing = [join_path(path_of(p), name) for _, p in self.walk() for name, value in p._values().items() if value is REQUIRED]
        if missing:
            raise ParamsError(f'{", ".join(missing)}: REQUIRED and not set, so {_class_name(type(self))} cannot be made; '
                              f'set {"it" if len(missing) == 1 else "them"} first', missing[0])
        for _, p in self.walk():
            try:
                p.check()
            except ValueError as error:
                raise ParamsError(f'{path_of(p) or type(p).__qualname__}: {error}', path_of(p)) from error
        return self

    def instantiate(self, *args: Any, **kwargs: Any) -> Any:
        """The object that these Params describe: `owner(self, *args, **kwargs)`."""
        if self.owner is None:
            raise ParamsError(f'{path_of(self) or type(self).__qualname__} makes no object: {type(self).__qualname__} belongs to no '
                              'Configurable; define it as the class Params inside one')
        return self.owner(self.validate(), *args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return _same(self, other) if isinstance(other, Params) else NotImplemented

    __hash__ = None   # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return _restored, (type(self), self._values(), self._frozen)

    def __repr__(self) -> str:
        changed = [f'{name}={show(value)}' for name, value in self._values().items() if not _same(value, self._fields()[name].default)]
        return show(_Mark(f'{type(self).__qualname__}({", ".join(changed)})'))

    # Text.

    def to_text(self) -> str:
        """The class, then one line `path : value` for every value; equal Params have equal text."""
        return '\n'.join(_lines('', self)) + '\n'

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The Params that `to_text` wrote. Empty lines and lines that start with '#' are skipped; a field without a line keeps its
        default.

        Raises:
          ParamsError: a wrong line, named by its number.
        """
        root, line_of = parse(text)
        try:
            params = _built(root, '')
        except ParamsError as error:
            path = error.path
            while path not in line_of:
                path = path[:-1]
            raise type(error)(f'line {line_of[path]}: {error}', error.path) from error
        if not isinstance(params, cls):
            raise ParamsError(f'line {line_of[""]}: found Params of {_class_name(type(params))}, not of {_class_name(cls)}; '
                              'read the text with the class that wrote it, or with Params.from_text')
        return params

    @classmethod
    def _from_word(cls, text: str, where: str) -> Params:
        return _find_class(text, where)()

    def describe(self) -> str:
        """A table of all fields: path, type, value, description."""
        rows = [('field', 'type', 'value', 'description')]
        for path, p in self.walk():
            for name, f in p._fields().items():
                full = f'{path}.{name}' if path else name
                rows.append((full, type_name(f.type), show(_Mark(_summary(vars(p)[name]))), f.doc))
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        return '\n'.join('  '.join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[3]]).rstrip() for row in rows) + '\n'


_AnyParams = Params   # inside Configurable, Params is its own


class Configurable:
    """An object made from Params. A subclass has a nested class Params of its own, written or automatic.

    Attributes:
      params: its Params, checked and frozen. Declare `params: Params` in a subclass for type checkers.
    """

    class Params(_AnyParams):
        """No fields of its own."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        above = [base.Params for base in cls.__bases__ if issubclass(base, Configurable)]
        own: Any = cls.__dict__.get('Params')
        if own is None or 'owner' in vars(own):
            bases = (own,) if own else tuple(dict.fromkeys(p for p in above if not any(q is not p and issubclass(q, p) for q in above)))
            own = type('Params', bases, {'__qualname__': f'{cls.__qualname__}.Params', '__module__': cls.__module__})
            cls.Params = own   # type: ignore[misc]
        for base in above:
            if not issubclass(own, base):
                raise ParamsError(f'{own.__qualname__} does not extend {base.__qualname__}; write class Params({base.__qualname__})')
        own.owner = cls

    def __init__(self, params: Any):
        if not isinstance(params, type(self).Params):
            raise ParamsError(f'{type(self).__qualname__} was given {show(params)}; give it {type(self).__qualname__}.Params(...)')
        params.validate()
        if not params.is_frozen:   # the copy keeps its name in errors
            params = params.copy()._place(params._parent, params._key).freeze()
        self.params: Any = params


Configurable.Params.owner = Configurable


def path_of(params: Params) -> str:
    """The path from the root, '' for the root: 'task.layers[17]'."""
    parts = []
    node: Params | None = params
    while node is not None:
        parts.append(node._key)
        node = node._parent
    return '.'.join(part for part in reversed(parts) if part)


# Differences.

def diff(a: Params, b: Params) -> list[tuple[str, Any, Any]]:
    """(path, value in a, value in b) of all that differs; a change of class once, with the two Params as values."""
    return list(_differences('', a, b))


def diff_text(a: Params, b: Params) -> str:
    """`diff` as the lines of a unified diff; '' if nothing differs."""
    lines = ['--- a', '+++ b']
    for path, *values in diff(a, b):
        for sign, value in zip('-+', values, strict=True):
            new = [] if value is ABSENT else list(_lines(path, value))
            lines += [f'{sign} {line}' for line in (new[:1] if isinstance(value, Params) else new)]
    return '\n'.join(lines) + '\n' if lines[2:] else ''


def _differences(path: str, a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(a, Params) and type(a) is type(b):
        a, b = a._values(), b._values()
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys([*a, *b]):
            yield from _differences(join_path(path, key), a.get(key, ABSENT), b.get(key, ABSENT))
    elif isinstance(a, tuple) and isinstance(b, tuple) and not (_is_plain(a) and _is_plain(b)):
        for i, (x, y) in enumerate(zip_longest(a, b, fillvalue=ABSENT)):
            yield from _differences(join_path(path, i), x, y)
    elif not _same(a, b):
        yield path, a, b


# Values.

def _copied(value: Any) -> Any:
    if isinstance(value, Params):
        return value.copy()
    if isinstance(value, dict):
        return {k: _copied(v) for k, v in value.items()}
    return tuple(map(_copied, value)) if isinstance(value, tuple) else value


def _nested(value: Any, path: str = '') -> Iterator[tuple[str, Params]]:
    """The Params directly in a value, through tuples and dicts."""
    if isinstance(value, Params):
        yield path, value
    elif isinstance(value, (tuple, dict)):
        for key, v in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _nested(v, join_path(path, key))


def _same(a: Any, b: Any) -> bool:
    """Equal in type and value; nan equals nan, 0.0 is not -0.0, as in their text."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Params):
        a, b = a._values(), b._values()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(v, b[k]) for k, v in a.items())
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return repr(a) == repr(b) if isinstance(a, float) else bool(a == b)


def _is_plain(value: Any) -> bool:
    """Whether its text is one line."""
    return all(map(_is_plain, value)) if isinstance(value, tuple) else not (isinstance(value, Params) or isinstance(value, dict) and value)


def _summary(value: Any) -> str:
    if isinstance(value, Params):
        return _class_name(type(value))
    return write(value) if _is_plain(value) else f'{len(value)} items'


def _restored(cls: type[Params], values: dict[str, Any], is_frozen: bool) -> Params:
    params = cls(**values)
    return params.freeze() if is_frozen else params


def _unknown(params: Params, key: Key) -> UnknownParamError:
    where = join_path(path_of(params), key)
    name = type(params).__qualname__
    return UnknownParamError(f'{where} does not exist: {name} has no field {key!r}; {nearest(key, params._fields())}', where)


# Classes.

def _types_of(cls: type, declared: dict[str, _Field]) -> dict[str, Any]:
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


def _class_name(cls: type[Params]) -> str:
    named = cls.__dict__.get('owner') or cls
    return f'{named.__module__}:{named.__qualname__}'


def _find_class(text: str, where: str) -> type[Params]:
    """The Params class that `_class_name` names; imports its module."""
    place = where or 'the root'
    if not re.fullmatch(r'[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*', text):
        raise ParamsError(f'{place}: {show(text)} is not the name of a class; write package.module:Class', where)
    module_name, qualname = text.split(':')
    try:
        found: Any = sys.modules.get(module_name) or importlib.import_module(module_name)
    except (Exception, SystemExit) as error:   # whatever the module's own code raises
        raise ParamsError(f'{place}: the module of {text} cannot be imported: {type(error).__name__}: {error}; '
                          'correct its name, or put it on the path', where) from error
    names = vars(found) if isinstance(found, types.ModuleType) else {}
    known = [name for name, value in names.items() if isinstance(value, type) and issubclass(value, (Configurable, Params))]
    for part in qualname.split('.'):
        found = vars(found).get(part) if isinstance(found, (type, types.ModuleType)) else None
    if isinstance(found, type) and issubclass(found, Configurable):
        return found.Params   # type: ignore[no-any-return]
    if isinstance(found, type) and issubclass(found, Params):
        return found
    raise ParamsError(f'{place}: {text} is no Configurable and no Params; {nearest(qualname, known, "its module has")}', where)


# Text.

def _lines(path: str, value: Any) -> Iterator[str]:
    before = f'{path} : ' if path else ''
    if isinstance(value, Params):
        yield before + _class_name(type(value))
        value = value._values()
    elif _is_plain(value):
        yield before + write(value)
        return
    for key, v in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _lines(join_path(path, key), v)


def _built(node: Node, path: str) -> Any:
    """The value of a node for `convert`. Params are made at once, as their class tells the types below."""
    if node.text is not None and path and not node.below:
        try:
            return read(node.text, is_bare_string=False)
        except ParamsError as error:
            raise ParamsError(f'{path}: {error}', path) from error
    if node.text is not None:
        params = _find_class(node.text, path)()._place(None, path)
        for key, below in node.below.items():
            if key not in params._fields():
                raise _unknown(params, key)
            params._put(str(key), _built(below, join_path(path, key)))
        return params
    values = {key: _built(below, join_path(path, key)) for key, below in node.below.items()}
    if list(values) == list(range(len(values))):
        return list(values.values())
    if all(isinstance(key, str) for key in values):
        return values
    raise ParamsError(f'{path} lists the items {", ".join(map(str, values))}; number them from 0, in order', path)
