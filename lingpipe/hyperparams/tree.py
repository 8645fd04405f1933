"""Tree: named, typed values, checked at every write, each of which knows its path from the root."""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from lingpipe.hyperparams.class_names import Owned, class_name
from lingpipe.hyperparams.field_types import Entries
from lingpipe.hyperparams.fields import REQUIRED, Field, declared, resolved
from lingpipe.hyperparams.paths import Key, ParamsError, UnknownParamError, join_path, split_path
from lingpipe.wording.keras_words import place_of
from lingpipe.wording.values import nearest, shortened, show

T = TypeVar('T', bound='Tree')

_MAX_DEPTH = 50  # The steps of the longest path of Params, well within Python's recursion limit.


class Tree(Owned):
    """What Params are made of: fields that may hold other Trees, which have one place each.

    Attributes:
      is_frozen: whether writes are refused. All values are valid then.
    """

    is_frozen: bool = False
    _parent: Tree | None = None  # With _key, the place in the tree above, which names this one.
    _key: str = ''  # 'units', 'layers[17]', 'reads.x'

    _declared: ClassVar[dict[str, Field]] = {}  # The fields of this class itself.

    def __init_subclass__(cls) -> None:
        cls._declared = declared(cls)

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
            self._store(name, value)

    def set(self, **values: Any) -> Self:
        """Sets fields by name or path, `p.set(**{'learner.lr': 1})`, and returns p."""
        for path, value in values.items():
            self[path] = value
        return self

    def _at(self, keys: list[Key]) -> Any:
        """What the keys name, from here down, or an UnknownParamError."""
        value: Any = self
        for i, key in enumerate(keys):
            values = parts(value)
            if key not in values:
                raise unknown(value, key, functools.reduce(join_path, keys[:i], path_of(self)))
            value = values[key]
        return value

    def _set(self, keys: list[Key], new: Any) -> None:
        """Sets what the keys name; a tuple or dict that holds it is replaced by a changed one."""
        if not keys:
            raise ParamsError("the path '' names these Params themselves and cannot be set; "
                              'name a field')
        *above, key = keys
        holder = self._at(above)
        if isinstance(holder, Tree):
            holder._store(key, new)
        elif isinstance(holder, dict) and isinstance(key, str):  # The entry may be new.
            self._set(above, {**holder, key: new})
        else:
            self._at(keys)  # An item must be there.
            self._set(above, tuple({**parts(holder), key: new}.values()))

    # The whole tree.

    def walk(self) -> Iterator[tuple[str, Tree]]:
        """(path, params) of these Params, whose path is '', and of all that are nested in them."""
        for keys, tree in trees(self):
            yield functools.reduce(join_path, keys, ''), tree

    def check(self) -> None:
        """For subclasses: raises ValueError if the values do not go together.

        It is called before an object is made.
        """

    def validate(self) -> Self:
        """Raises ParamsError unless all REQUIRED are set and every check() passes; returns p."""
        if self.is_frozen:
            return self
        nested = [tree for _, tree in trees(self)]
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

    def copy(self) -> Self:
        """A deep copy, not frozen, with no parent."""
        new = object.__new__(type(self))
        new._fill(parts(self))
        return new

    __copy__ = copy

    def freeze(self) -> Self:
        """Validates, and refuses every later write, here and in all nested Params; returns p."""
        for _, tree in trees(self.validate()):
            vars(tree)['is_frozen'] = True
        return self

    def __reduce__(self) -> Any:
        return _restored, (type(self), parts(self), self.is_frozen)

    # Places.

    def _fill(self, values: dict[str, Any]) -> None:
        """Stores checked values, with copies of the Trees in them."""
        def copied(tree: Tree, key: str) -> Tree:
            return with_path(tree.copy(), key, self)

        for name, value in values.items():
            vars(self)[name] = _with_trees(value, name, copied)

    def _store(self, key: Key, new: Any) -> None:
        """Checks and stores a value. Trees in it get their place, and those before lose it."""
        name = str(key)
        f = fields_of(self).get(name)
        if f is None:
            raise unknown(self, key, path_of(self))
        where = join_path(path_of(self), name)
        if self.is_frozen:
            raise ParamsError(f'{where} cannot be set: these Params are frozen, as they belong to '
                              'an object made from them; change a .copy() and make another', where)
        new = f.converted(new, where)

        before = vars(self).get(name)
        if isinstance(new, _HOLDERS) or isinstance(before, _HOLDERS):
            depth = max((len(keys) for keys, _ in trees(new, *split_path(where))), default=0)
            if depth > _MAX_DEPTH:
                raise ParamsError(f'{shortened(where)} holds Params nested so deep that a path has '
                                  f'{depth} steps; use at most {_MAX_DEPTH}: nest them less', where)
            _with_trees(before, '', lambda tree, _: with_path(tree, ''))
            new = _with_trees(new, name, self._adopted)
        vars(self)[name] = new

    def _adopted(self, tree: Tree, key: str) -> Tree:
        """The tree in its place here, or a copy of one that has another place or is the root."""
        root = self
        while root._parent is not None:
            root = root._parent
        if tree._parent is not None or tree.is_frozen or tree is root:
            tree = tree.copy()
        return with_path(tree, key, self)


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


def with_path(tree: T, path: str, parent: Tree | None = None) -> T:
    """The same tree, in its place below a parent, or a root whose errors begin with `path`."""
    vars(tree).update(_parent=parent, _key=path)
    return tree


# Values: scalars, Trees, and tuples and dicts of values.

def parts(value: object) -> dict[Any, Any]:
    """What a value is made of: fields by name, entries by key, items by index; {} for a scalar."""
    if isinstance(value, Tree):
        values = vars(value)
        return {name: values[name] for name in fields_of(value)}
    if isinstance(value, tuple):
        return dict(enumerate(value))
    return dict(value) if isinstance(value, dict) else {}


def is_plain(value: object) -> bool:
    """Whether the text of a value is one line."""
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    return not (isinstance(value, Tree) or isinstance(value, dict) and value)


def trees(value: object, *keys: Key) -> list[tuple[tuple[Key, ...], Tree]]:
    """(its keys, tree) for all Trees in the value that the keys name, from the top down."""
    found = [(keys, value)] if isinstance(value, Tree) else []
    for key, part in parts(value).items():
        if part and isinstance(part, _HOLDERS):  # Most are scalars, and many of those are false.
            found += trees(part, *keys, key)
    return found


def _with_trees(value: Any, path: str, change: Callable[[Tree, str], Tree]) -> Any:
    """The value at a path with change(tree, path) for each Tree that it holds directly."""
    if not value or not isinstance(value, _HOLDERS):
        return value
    if isinstance(value, Tree):
        return change(value, path)
    new = {k: _with_trees(v, join_path(path, k), change) for k, v in parts(value).items()}
    return Entries(new) if isinstance(value, dict) else tuple(new.values())


def unknown(value: object, key: Key, path: str) -> UnknownParamError:
    """The error that says what can be asked of the value at a path, of which `key` is no part."""
    if isinstance(value, Tree):
        remedy = place_of(key) or nearest(key, fields_of(value))
        reason = f'{type(value).__qualname__} has no field {key!r}; {remedy}'
    elif isinstance(value, dict):
        reason = f'{path} is a dict; {nearest(key, value)}'
    elif isinstance(value, tuple):
        rule = f'use [0] to [{len(value) - 1}]' if value else 'it is empty'
        reason = f'{path} is a tuple of {len(value)} items; {rule}'
    else:
        reason = f'{path} is {show(value)}, which has no parts; set {path} itself'
    where = join_path(path, key)
    return UnknownParamError(f'{where} does not exist: {reason}', where)
