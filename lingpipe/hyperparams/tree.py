"""Tree: named, typed values, checked at every write, each of which knows its path from the root."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from lingpipe.hyperparams.class_names import Owned
from lingpipe.hyperparams.errors import ParamsError, UnknownParamError
from lingpipe.hyperparams.field_types import Entries
from lingpipe.hyperparams.fields import Field, declared, resolved
from lingpipe.hyperparams.paths import Key, join_path, split_path
from lingpipe.wording.keras_words import place_of
from lingpipe.wording.values import nearest, shortened, show

T = TypeVar('T', bound='Tree')

_MAX_DEPTH = 50  # The steps of the longest path of Params, well within Python's recursion limit.


class Tree(Owned):
    """What Params are made of: fields that may hold other Trees, which have one place each.

    Attributes:
      is_frozen: whether writes are refused.
    """

    is_frozen: bool = False
    _is_valid: bool = False  # Whether all was checked since the last write, here and below.
    _parent: Tree | None = None  # With _key, the place in the tree above, which names this one.
    _key: str = ''  # 'units', 'layers[17]', 'reads.x'

    _declared: ClassVar[dict[str, Field]] = {}  # The fields of this class itself.

    def __init_subclass__(cls) -> None:
        cls._declared = declared(cls)

    def __init__(self, *unnamed: Any, **values: Any):
        if unnamed:
            raise ParamsError(f'{type(self).__qualname__} was given {show(unnamed[0])} without a '
                              f'name; give every value by its name: {", ".join(fields_of(self))}')
        for name, f in fields_of(self).items():
            vars(self)[name] = _with_trees(
                f.default, name, lambda tree, key: self._adopted(tree.copy(), key))
        self.set(**values)

    # Reading and writing.

    def __getitem__(self, path: str) -> Any:
        """The value at a path: p['task.layers[17].units'], p['reads.x']; p[''] is p."""
        return self._at(split_path(path))[0]

    def __setitem__(self, path: str, value: Any) -> None:
        self._set(split_path(path), value)

    def __contains__(self, path: str) -> bool:
        try:
            self[path]
        except ParamsError:
            return False
        return True

    if not TYPE_CHECKING:  # A type checker would take any name for right.
        def __getattr__(self, name: str) -> Any:
            raise unknown(self, name, path_of(self))

        def __setattr__(self, name: str, value: Any) -> None:
            f = fields_of(self).get(name)
            if f is None:
                raise unknown(self, name, path_of(self))
            where = join_path(path_of(self), name)
            if self.is_frozen:
                raise ParamsError(f'{where} cannot be set: these Params are frozen, as they belong '
                                  'to an object made from them; change a .copy() and make another',
                                  where)
            self._store(name, f.converted(value, where), where)

    def set(self, **values: Any) -> Self:
        """Sets fields by name or path, `p.set(**{'learner.lr': 1})`, and returns p."""
        for path, value in values.items():
            self[path] = value
        return self

    def _at(self, keys: list[Key]) -> tuple[Any, str]:
        """What the keys name, from here down, and its path.

        Raises:
          UnknownParamError: they name nothing.
        """
        value: Any = self
        where = path_of(self)
        for key in keys:
            values = parts(value)
            if key not in values:
                raise unknown(value, key, where)
            value = values[key]
            where = join_path(where, key)
        return value, where

    def _set(self, keys: list[Key], new: Any) -> None:
        """Sets what the keys name; a tuple or dict that holds it is replaced by a changed one."""
        if not keys:
            raise ParamsError("the path '' names these Params themselves and cannot be set; "
                              'name a field')
        *above, key = keys
        if not above:
            setattr(self, str(key), new)
            return
        holder, where = self._at(above)
        is_entry = isinstance(holder, dict) and isinstance(key, str)
        if not is_entry and key not in parts(holder):  # An entry may be new.
            raise unknown(holder, key, where)

        if isinstance(holder, Tree):
            setattr(holder, str(key), new)
        else:
            changed = {**parts(holder), key: new}
            self._set(above, changed if is_entry else tuple(changed.values()))

    # The whole tree.

    def walk(self) -> Iterator[tuple[str, Tree]]:
        """(path, params) of these Params, whose path is '', and of all that are nested in them."""
        return _trees(self, '')

    def check(self) -> None:
        """For subclasses: raises ValueError if the values do not go together.

        It is called before an object is made.
        """

    def copy(self) -> Self:
        """A deep copy, not frozen, with no parent."""
        new = object.__new__(type(self))
        for name, value in parts(self).items():
            vars(new)[str(name)] = _with_trees(value, str(name), new._adopted)
        vars(new)['_is_valid'] = self._is_valid
        return new

    __copy__ = copy

    def freeze(self) -> Self:
        """Refuses every later write, here and in all nested Params; returns p."""
        for _, tree in self.walk():
            vars(tree)['is_frozen'] = True
        return self

    def __reduce__(self) -> Any:
        return _restored, (type(self), parts(self), self.is_frozen)

    # Places.

    def _store(self, name: str, value: Any, where: str) -> None:
        """Stores a checked value. Trees in it get their place here, and those before lose it."""
        before = vars(self).get(name)
        if isinstance(value, _HOLDERS) or isinstance(before, _HOLDERS):  # Most are scalars.
            depth = max(_depths(value, len(split_path(where))), default=0)
            if depth > _MAX_DEPTH:
                raise ParamsError(f'{shortened(where)} holds Params nested so deep that a path has '
                                  f'{depth} steps; use at most {_MAX_DEPTH}: nest them less', where)
            _with_trees(before, '', lambda tree, _: with_path(tree, ''))
            value = _with_trees(value, name, self._adopted)
        vars(self)[name] = value

        tree: Tree | None = self
        while tree is not None and tree._is_valid:  # What is above one that is not valid is not.
            vars(tree)['_is_valid'] = False
            tree = tree._parent

    def _adopted(self, tree: Tree, key: str) -> Tree:
        """The tree in its place here, or a copy of one that has another place or is the root."""
        root = self
        while root._parent is not None:
            root = root._parent
        if tree._parent is not None or tree.is_frozen or tree is root:
            tree = tree.copy()
        vars(tree).update(_parent=self, _key=key)
        return tree


_HOLDERS = (Tree, tuple, dict)  # The types of values that may hold a Tree.


def _restored(cls: type[Tree], values: dict[str, Any], is_frozen: bool) -> Tree:
    tree = cls(**values)
    return tree.freeze() if is_frozen else tree


def fields_of(tree: Tree | type[Tree]) -> dict[str, Field]:
    """All fields of a Tree or of its class, by name, with their types."""
    cls: type = tree if isinstance(tree, type) else type(tree)
    return resolved(cls)


def path_of(tree: Tree) -> str:
    """The path from the root, '' for the root: 'task.layers[17]'."""
    above = path_of(tree._parent) if tree._parent is not None else ''
    return '.'.join(filter(None, [above, tree._key]))


def with_path(tree: T, path: str) -> T:
    """The same tree, a root whose errors begin with `path` as if it were nested there."""
    vars(tree).update(_parent=None, _key=path)
    return tree


# Values: scalars, Trees, and tuples and dicts of values.

def parts(value: object) -> dict[Key, Any]:
    """What a value is made of: fields by name, entries by key, items by index; {} for a scalar."""
    if isinstance(value, Tree):
        values = vars(value)
        return {name: values[name] for name in fields_of(value)}
    if isinstance(value, dict):
        return dict(value)
    return dict(enumerate(value)) if isinstance(value, tuple) else {}


def is_plain(value: object) -> bool:
    """Whether the text of a value is one line."""
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    return not (isinstance(value, Tree) or isinstance(value, dict) and value)


def _trees(value: object, path: str) -> Iterator[tuple[str, Tree]]:
    """(path, tree) of all Trees in the value at a path, from the top down."""
    if isinstance(value, Tree):
        yield path, value
    for key, part in parts(value).items():
        if isinstance(part, _HOLDERS):
            yield from _trees(part, join_path(path, key))


def _depths(value: object, depth: int) -> Iterator[int]:
    """The number of steps of the path of each Tree in the value at a path of `depth` steps."""
    if isinstance(value, Tree):
        yield depth
    for part in parts(value).values():
        if isinstance(part, _HOLDERS):
            yield from _depths(part, depth + 1)


def _with_trees(value: Any, path: str, change: Callable[[Tree, str], Tree]) -> Any:
    """The value at a path with change(tree, path) for each Tree that it holds directly."""
    if not isinstance(value, _HOLDERS):
        return value
    if isinstance(value, Tree):
        return change(value, path)
    if isinstance(value, tuple):
        return tuple(_with_trees(v, join_path(path, i), change) for i, v in enumerate(value))
    items = value.items()
    return Entries({k: _with_trees(v, join_path(path, k), change) for k, v in items})


def unknown(value: object, key: Key, path: str) -> UnknownParamError:
    """The error that says what can be asked of the value at a path, of which `key` is no part."""
    if isinstance(value, Tree):
        name = type(value).__qualname__
        remedy = place_of(key) or nearest(key, fields_of(value))
        reason = f'{name} has no field {key!r}; {remedy}'
    elif isinstance(value, dict):
        reason = f'{path} is a dict; {nearest(key, value)}'
    elif isinstance(value, tuple):
        rule = f'use [0] to [{len(value) - 1}]' if value else 'it is empty'
        reason = f'{path} is a tuple of {len(value)} items; {rule}'
    else:
        reason = f'{path} is {show(value)}, which has no parts; set {path} itself'
    where = join_path(path, key)
    return UnknownParamError(f'{where} does not exist: {reason}', where)
