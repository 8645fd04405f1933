"""Tree: named, typed values, checked at every write. Each Tree knows its place in the one above, which names it in errors."""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Self

from lingpipe.hyperparams.errors import ParamsError, UnknownParamError, nearest, shortened, show
from lingpipe.hyperparams.field_types import Entries
from lingpipe.hyperparams.fields import REQUIRED, Field, declared, resolved
from lingpipe.hyperparams.paths import MAX_DEPTH, Key, element, join_path, replaced, split_path
from lingpipe.hyperparams.value_text import Word


class Tree:
    """What Params are made of: fields that may hold other Trees, and their paths. A Tree has one place; see the package's docstring."""

    _parent: Tree | None = None           # with _key, the place in the tree above: only used to name it
    _key: str = ''                        # 'units', 'layers[17]', 'reads.x'
    _frozen: bool = False
    _reach: int = 1                       # steps of the longest path below; too many once that was replaced

    def __init_subclass__(cls) -> None:
        cls._declared = declared(cls)

    def __init__(self, **values: Any):
        for name, f in self._fields().items():
            self._hold(name, copied(f.default))
        for name, value in values.items():
            self._put(name, value)

    # Fields.

    _declared: ClassVar[dict[str, Field]] = {}   # this class's own
    _resolved: ClassVar[dict[str, Field]]        # all, with their types

    @classmethod
    def _fields(cls) -> dict[str, Field]:
        """All fields with their types, which are resolved at first use: a class may name what is defined after it."""
        if '_resolved' not in cls.__dict__:
            cls._resolved = resolved(cls)
        return cls._resolved

    def _put(self, name: str, value: Any) -> None:
        """Checks and stores the value of a field."""
        where = join_path(path_of(self), name)
        f = self._fields().get(name)
        if f is None:
            raise self._unknown(name)
        if self._frozen:
            raise ParamsError(f'{where} cannot be set: these Params are frozen, as they belong to an object made from them; '
                              'change a .copy() and make another', where)
        if isinstance(value, Word) and value.text == 'REQUIRED':
            value = REQUIRED
        self._hold(name, f.converted(value, where))

    def _hold(self, name: str, value: Any) -> None:
        """Stores a checked value. Params in it get their place here; those that have another place are copied."""
        before = vars(self).get(name)
        if not isinstance(value, _CAN_NEST) and not isinstance(before, _CAN_NEST):   # most, and a large network has 200,000
            vars(self)[name] = value
            return
        here = {id(p): p for _, p in nested(before)}
        above = [self]
        while above[-1]._parent is not None:
            above.append(above[-1]._parent)
        root = above[-1]
        reach = self._allowed_reach(name, value, above)

        def placed(value: Any, key: str) -> Any:
            """The value with every Tree in it in its place: itself, or a copy if it is in another already."""
            if isinstance(value, Tree):
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
        for tree in above:
            vars(tree)['_reach'] = max(tree._reach, reach)
            reach += _num_steps(tree._key)

    def _allowed_reach(self, name: str, value: Any, above: list[Tree]) -> int:
        """An upper bound of the steps of the longest path from here into `value`, the value of a field.

        Raises:
          ParamsError: a path from the root would have more than MAX_DEPTH steps, so that its text could
            not be read back.
        """
        num_before = sum(_num_steps(tree._key) for tree in above)
        reach = 1 + _reach(value, is_exact=False)
        if num_before + reach > MAX_DEPTH:
            reach = 1 + _reach(value, is_exact=True)
        if num_before + reach > MAX_DEPTH:
            where = join_path(path_of(self), name)
            raise ParamsError(f'{shortened(where)} holds Params nested so deep that a path has {num_before + reach} steps; use at most '
                              f'{MAX_DEPTH}: nest them less', where)
        return reach

    def _place(self, parent: Tree | None, key: str) -> Self:
        vars(self).update(_parent=parent, _key=key)
        return self

    def _get(self, keys: list[Key]) -> Any:
        value: Any = self
        where = path_of(self)
        for key in keys:
            if not isinstance(value, Tree):
                value = element(value, key, where)
            elif key in value._fields():
                value = vars(value)[key]   # type: ignore[index]
            else:
                raise value._unknown(key)
            where = join_path(where, key)
        return value

    def _values(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in self._fields()}

    if not TYPE_CHECKING:   # a type checker would take any name for right
        def __getattr__(self, name: str) -> Any:
            raise self._unknown(name)

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
        holders = [(i, p) for i in range(len(keys)) if isinstance(p := self._get(keys[:i]), Tree)]
        at, holder = holders[-1]
        if isinstance(keys[at], int):
            raise holder._unknown(keys[at])
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

    def copy(self) -> Self:
        """A deep copy, not frozen, with no parent."""
        new = object.__new__(type(self))
        for name, value in self._values().items():
            new._hold(name, copied(value))
        return new

    __copy__ = copy

    def freeze(self) -> Self:
        """Refuses every later write, here and in all nested Params; returns p."""
        for _, p in self.walk():
            vars(p)['_frozen'] = True
        return self

    @property
    def is_frozen(self) -> bool:
        """Whether writes are refused."""
        return self._frozen

    def walk(self) -> Iterator[tuple[str, Any]]:
        """(path, params) of these Params, whose path is '', and of all that are nested in them."""
        yield '', self
        for name, value in self._values().items():
            for path, child in nested(value, name) if isinstance(value, _CAN_NEST) else ():
                yield from ((path + ('.' if inner else '') + inner, p) for inner, p in child.walk())

    def __eq__(self, other: object) -> bool:
        return same(self, other) if isinstance(other, Tree) else NotImplemented

    __hash__ = None   # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return _restored, (type(self), self._values(), self._frozen)

    def __repr__(self) -> str:
        changed = [f'{name}={show(value)}' for name, value in self._values().items() if not same(value, self._fields()[name].default)]
        return shortened(f'{type(self).__qualname__}({", ".join(changed)})')

    def _unknown(self, key: Key) -> UnknownParamError:
        where = join_path(path_of(self), key)
        name = type(self).__qualname__
        return UnknownParamError(f'{where} does not exist: {name} has no field {key!r}; {nearest(key, self._fields())}', where)


_CAN_NEST = (Tree, tuple, dict)


def path_of(params: Tree) -> str:
    """The path from the root, '' for the root: 'task.layers[17]'."""
    parts = []
    node: Tree | None = params
    while node is not None:
        parts.append(node._key)
        node = node._parent
    return '.'.join(part for part in reversed(parts) if part)


def _num_steps(key: str) -> int:
    """The steps of a tree's key in the tree above it: 2 for 'layers[17]', 0 for the root."""
    return len(split_path(key)) if key else 0


def _reach(value: Any, is_exact: bool) -> int:
    """The steps of the longest path below a value: 0 for what is written on one line.

    Unless `is_exact`, the result is an upper bound that Trees keep, found without looking into them.
    """
    if isinstance(value, Tree):
        return 1 + max((_reach(v, True) for v in value._values().values()), default=0) if is_exact else value._reach
    if isinstance(value, dict):
        return 1 + max((_reach(v, is_exact) for v in value.values()), default=-1)
    longest = max((_reach(v, is_exact) for v in value), default=0) if isinstance(value, tuple) else 0
    return longest + 1 if longest else 0


def copied(value: Any) -> Any:
    """The value with a copy of every Tree in it."""
    if isinstance(value, Tree):
        return value.copy()
    if isinstance(value, dict):
        return {k: copied(v) for k, v in value.items()}
    return tuple(map(copied, value)) if isinstance(value, tuple) else value


def nested(value: Any, path: str = '') -> Iterator[tuple[str, Tree]]:
    """The Params directly in a value, through tuples and dicts."""
    if isinstance(value, Tree):
        yield path, value
    elif isinstance(value, (tuple, dict)):
        for key, v in value.items() if isinstance(value, dict) else enumerate(value):
            yield from nested(v, join_path(path, key))


def same(a: Any, b: Any) -> bool:
    """Equal in type and value; nan equals nan, 0.0 is not -0.0, as in their text."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tree):
        a, b = a._values(), b._values()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b) if isinstance(a, float) else bool(a == b)


def _restored(cls: type[Tree], values: dict[str, Any], is_frozen: bool) -> Tree:
    params = cls(**values)
    return params.freeze() if is_frozen else params
