"""Params: named, typed values, checked at every write, each of which knows its path."""
from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self, TypeVar, dataclass_transform, get_args

from lingpipe.hyperparams.class_names import Owned, class_name, find_class, is_params_class
from lingpipe.hyperparams.field_types import Entries
from lingpipe.hyperparams.fields import REQUIRED, check_fields, diff, fields_of, lines, parts
from lingpipe.hyperparams.paths import Key, ParamsError, UnknownParamError, join_path, split_path
from lingpipe.hyperparams.text import Written, parsed
from lingpipe.wording.counts import counted
from lingpipe.wording.keras_words import place_of
from lingpipe.wording.values import nearest, shortened, show

T = TypeVar('T', bound='Params')

_signature = functools.cache(inspect.signature)  # A network has many layers of the same class.
_MAX_DEPTH = 50  # The steps of the longest path of Params, well within Python's recursion limit.


# field() is no specifier here: every keyword is optional until instantiate().
@dataclass_transform(kw_only_default=True)
class Params(Owned):
    """Typed, named values; see the package's docstring. Subclasses declare fields with `field`.

    Attributes:
      is_frozen: whether writes are refused. All values are valid then.
    """

    is_frozen: bool = False
    _parent: Params | None = None  # With _key, the place in the Params above, which names these.
    _key: str = ''  # 'units', 'layers[17]', 'reads.x'

    def __init_subclass__(cls) -> None:
        check_fields(cls)

    def __init__(self, *unnamed: Any, **values: Any):
        if unnamed:
            raise ParamsError(f'{type(self).__qualname__} was given {show(unnamed[0])} without a '
                              f'name; give every value by its name: {", ".join(fields_of(self))}')
        self._fill({name: f.default for name, f in fields_of(self).items()})
        self.set(**values)

    # Reading and writing.

    def __getitem__(self, path: str) -> Any:
        """The value at a path: p['task.layers[17].units'], p['reads.x']; p[''] is p."""
        return self._at(split_path(path))

    def __setitem__(self, path: str, value: Any) -> None:
        keys = split_path(path)
        if not keys:
            raise ParamsError("the path '' names these Params and cannot be set; name a field")
        while not isinstance(holder := self._at(keys[:-1]), Params):
            if not (isinstance(holder, dict) and isinstance(keys[-1], str)):
                self._at(keys)  # There must be such an item; an entry of a dict may be new.
            changed = {**parts(holder), keys[-1]: value}
            value = changed if isinstance(holder, dict) else tuple(changed.values())
            keys = keys[:-1]
        holder._store(keys[-1], value)

    def __contains__(self, path: str) -> bool:
        with contextlib.suppress(ParamsError):
            self[path]
            return True
        return False

    if not TYPE_CHECKING:  # A type checker would take any name for right.
        def __getattr__(self, name: str) -> Any:
            raise _unknown(self, name, path_of(self))

        def __setattr__(self, name: str, value: Any) -> None:
            self._store(name, value)

    def set(self, **values: Any) -> Self:
        """Sets fields by name or path, `p.set(**{'learner.lr': 1})`, and returns p."""
        for path, value in values.items():
            self[path] = value
        return self

    # The object.

    def check(self) -> None:
        """Subclasses override it to raise ValueError if the values do not go together."""

    def validate(self) -> Self:
        """Raises ParamsError unless all REQUIRED are set and every check() passes; returns p."""
        if self.is_frozen:
            return self
        nested = [params for _, params in _nested(self)]
        missing = [join_path(path_of(p), name) for p in nested
                   for name, value in parts(p).items() if value is REQUIRED]
        if missing:
            raise ParamsError(f'{", ".join(missing)}: REQUIRED and not set, so '
                              f'{class_name(type(self))} cannot be made; '
                              f'set {"it" if len(missing) == 1 else "them"} first', missing[0])
        for p in nested:
            try:
                p.check()
            except ValueError as error:
                where = path_of(p)
                raise ParamsError(f'{where or type(p).__qualname__}: {error}', where) from error
        return self

    def freeze(self) -> Self:
        """Validates, and refuses every later write, here and in all nested Params; returns p."""
        for _, params in _nested(self.validate()):
            vars(params)['is_frozen'] = True
        return self

    def instantiate(self, *args: Any, **kwargs: Any) -> Any:
        """The object that these Params describe: `owner(self, *args, **kwargs)`.

        Raises ParamsError if values are missing or wrong, or __init__ of the class is not as
        Configurable's.
        """
        if self.owner is None:
            name = type(self).__qualname__
            raise ParamsError(f'{path_of(self) or name} makes no object: {name} belongs to no '
                              'Configurable; define it as the class Params inside one')
        init, more = f'__init__ of {self.owner.__qualname__}', ', path' if args else ''
        try:
            _signature(self.owner).bind(self, *args, **kwargs)
        except TypeError as error:
            raise ParamsError(f'{init} does not take what it is given ({error}); '
                              f'write def __init__(self, params{more})') from error
        made = self.owner(self, *args, **kwargs)
        if not hasattr(made, 'params'):
            raise ParamsError(f'{init} does not call that of its base class; '
                              f'begin it with super().__init__(params{more})')
        return made

    # The text.

    def override(self, path: str, text: str) -> Self:
        """Sets the value at a path from a person's text, read by the field's type."""
        self[path] = Written(text.strip(), is_by_person=True)
        return self

    def override_all(self, settings: Iterable[str]) -> Self:
        """`override` for each of these texts, path=value, as `--set` takes them."""
        for setting in settings:
            path, equals, text = setting.partition('=')
            if not equals or not path.strip():
                raise ParamsError(f'--set {setting} has no value; '
                                  'write --set path=value, as --set pipeline.num_cells=4.')
            self.override(path.strip(), text)
        return self

    def to_text(self) -> str:
        """The class, then one line `path : value` for every value; equal Params have equal text."""
        return ''.join(line + '\n' for line in lines(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The Params that `to_text` wrote; a ParamsError names a wrong line by its number.

        Empty lines and lines that start with '#' are skipped; a field without a line keeps its
        default. Reading imports no modules but lingpipe's own; see class_names.py.
        """
        root = parsed(text)
        try:
            params = _value_of(root, '')
            if isinstance(params, cls):
                return params
            raise ParamsError(f'found Params of {class_name(type(params))}, not of '
                              f'{class_name(cls)}; read the text with the class that wrote it, '
                              'or with Params.from_text')
        except ParamsError as error:
            node = root
            for key in split_path(error.path):
                node = node.below.get(key, node)
            raise type(error)(f'line {node.number}: {error}', error.path) from error
        except RecursionError as error:
            raise ParamsError('line 1: the Params nest too deep; nest them less') from error

    # Python's own protocols.

    def walk(self) -> Iterator[tuple[str, Params]]:
        """(path, params) of these Params, whose path is '', and of all that are nested in them."""
        for keys, params in _nested(self):
            yield functools.reduce(join_path, keys, ''), params

    def copy(self) -> Self:
        """A deep copy, not frozen, with no parent."""
        new = object.__new__(type(self))
        new._fill(parts(self))
        return new

    __copy__ = copy

    def __reduce__(self) -> Any:
        return _restored, (type(self), parts(self), self.is_frozen)

    def __eq__(self, other: object) -> bool:
        """Equal in class and values, as their text is: nan equals nan, and 0.0 is not -0.0."""
        return not diff(self, other) if isinstance(other, Params) else NotImplemented

    def __repr__(self) -> str:
        changed = [f'{name}={show(value)}' for name, value in parts(self).items()
                   if diff(fields_of(self)[name].default, value)]
        return shortened(f'{type(self).__qualname__}({", ".join(changed)})')

    # Places.

    def _at(self, keys: tuple[Key, ...]) -> Any:
        """What the keys name, from here down, or an UnknownParamError."""
        value: Any = self
        tp = None  # Of the field that holds the value.
        for i, key in enumerate(keys):
            values = parts(value)
            if key not in values:
                raise _unknown(value, key, functools.reduce(join_path, keys[:i], path_of(self)), tp)
            tp = fields_of(value)[str(key)].type if isinstance(value, Params) else None
            value = values[key]
        return value

    def _fill(self, values: dict[str, Any]) -> None:
        """Stores checked values, with copies of the Params in them."""
        vars(self).update(values)
        for name, value in values.items():
            if value and isinstance(value, _HOLDERS):
                vars(self)[name] = self._placed(value, name, is_copied=True)

    def _store(self, key: Key, new: Any) -> None:
        """Checks and stores a value. Params in it get their place, and those before lose it."""
        name = str(key)
        f = fields_of(self).get(name)
        if f is None:
            raise _unknown(self, key, path_of(self))
        where = join_path(path_of(self), name)
        if self.is_frozen:
            raise ParamsError(f'{where} cannot be set: these Params are frozen, as they belong to '
                              'an object made from them; change a .copy() and make another', where)
        new = f.converted(new, where)

        before = vars(self).get(name)
        if isinstance(new, _HOLDERS) or isinstance(before, _HOLDERS):
            nested = _nested(new, *split_path(where))
            depth = max((len(keys) for keys, _ in nested), default=0)
            if depth > _MAX_DEPTH:
                raise ParamsError(f'{shortened(where)} holds Params nested so deep that a path has '
                                  f'{depth} steps; use at most {_MAX_DEPTH}: nest them less', where)
            for _, params in _nested(before):
                if params._parent is self:
                    with_path(params, '')
            is_around = any(params is self for _, params in nested)  # Nothing can be in itself.
            new = self._placed(new, name, is_copied=is_around)
        vars(self)[name] = new

    def _placed(self, value: Any, path: str, is_copied: bool) -> Any:
        """The value with its Params in their place here, or with copies of those that have one."""
        if isinstance(value, Params):
            if is_copied or value._parent is not None or value.is_frozen:
                value = value.copy()
            return with_path(value, path, self)
        if value and isinstance(value, (tuple, dict)):
            placed = {key: self._placed(part, join_path(path, key), is_copied)
                      if isinstance(part, _HOLDERS) else part for key, part in parts(value).items()}
            return Entries(placed) if isinstance(value, dict) else tuple(placed.values())
        return value


_HOLDERS = (Params, tuple, dict)  # The types of values that may hold Params.


def path_of(params: Params) -> str:
    """The path from the root, '' for the root: 'task.layers[17]'."""
    above = path_of(params._parent) if params._parent is not None else ''
    return '.'.join(filter(None, [above, params._key]))


def with_path(params: T, path: str, parent: Params | None = None) -> T:
    """The same Params, in their place below a parent, or a root whose errors begin with `path`."""
    vars(params).update(_parent=parent, _key=path)
    return params


def _restored(cls: type[Params], values: dict[str, Any], is_frozen: bool) -> Params:
    params = cls(**values)
    return params.freeze() if is_frozen else params


def _nested(value: object, *keys: Key) -> list[tuple[tuple[Key, ...], Params]]:
    """(its keys, params) for all Params in the value that the keys name, from the top down."""
    found = [(keys, value)] if isinstance(value, Params) else []
    for key, part in parts(value).items():
        if part and isinstance(part, _HOLDERS):  # Most are scalars, and many of those are false.
            found += _nested(part, *keys, key)
    return found


def _value_of(written: Written, path: str) -> Any:
    """The value at a path, for a field to convert. Params are made here, each with its path."""
    if path and not written.below:
        return written
    if written.text:
        params: Params = with_path(find_class(written, path)(), path)
        for key, part in written.below.items():
            params._at((key,))  # There is such a field.
            params._store(key, _value_of(part, join_path(path, key)))
        return params

    values = {key: _value_of(part, join_path(path, key)) for key, part in written.below.items()}
    if list(values) == list(range(len(values))):
        return list(values.values())
    if all(isinstance(key, str) for key in values):
        return values
    raise ParamsError(f'{path} lists the items {", ".join(map(str, values))}; '
                      'number them from 0, in order', path)


def _unknown(value: object, key: Key, path: str, tp: Any = None) -> UnknownParamError:
    """The error that says what can be asked of the value at a path, of which `key` is no part."""
    if isinstance(value, Params):
        remedy = place_of(key) or nearest(key, fields_of(value))
        reason = f'{type(value).__qualname__} has no field {key!r}; {remedy}'
    elif isinstance(value, dict):
        reason = f'{path} is a dict; {nearest(key, value)}'
    elif isinstance(value, tuple):
        rule = f'use [0] to [{len(value) - 1}]' if value else 'it is empty'
        reason = f'{path} is a tuple of {counted(len(value), "item")}; {rule}'
    else:
        only = [cls for cls in get_args(tp) if is_params_class(cls) and not cls.__subclasses__()]
        first = f' first, as {path}={class_name(only[0])}' if only else ''
        reason = f'{path} is {show(value)}, which has no parts; set {path} itself{first}'
    where = join_path(path, key)
    return UnknownParamError(f'{where} does not exist: {reason}', where)
