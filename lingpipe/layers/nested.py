"""Nested named values: what layers read and write, and what theta is made of.

A nested value is a tensor (or any leaf), or a dict of nested values with string keys. The functions
here and tf.nest agree on the order of leaves (sorted keys), but this file needs no TensorFlow.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

# A nested value: a leaf, which is a tensor, an array, a tf.TensorSpec or what they are made of, or
# a dict of nested values. Type checkers see no leaf, since TensorFlow has no types.
Nested: TypeAlias = Any


class NestedMap(dict[str, Any]):
    """A dict whose entries are attributes too: `theta.w` is `theta['w']`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f'no entry {name!r}; there are: '
                                 f'{", ".join(sorted(self)) or "none"}') from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def flatten(value: Nested, path: str = '') -> Iterator[tuple[str, Any]]:
    """Yields (path, leaf) in sorted order of keys; the path of a bare leaf is ''.

    None and {} have no leaves.
    """
    if isinstance(value, dict):
        for key in sorted(value):
            yield from flatten(value[key], f'{path}/{key}' if path else key)
    elif value is not None:
        yield path, value


def leaves(value: Nested) -> list[Any]:
    """The leaves of a nested value, in the order of `flatten`."""
    return [leaf for _, leaf in flatten(value)]


def map_leaves(fn: Callable[..., Any], value: Nested, *others: Nested) -> Nested:
    """The same structure with fn(leaf, *leaves of others at the same place) for every leaf."""
    if isinstance(value, dict):
        return type(value)((key, map_leaves(fn, value[key], *[other[key] for other in others]))
                           for key in value)
    return None if value is None else fn(value, *others)


def pack_like(structure: Nested, flat: list[Any]) -> Nested:
    """The structure with its leaves replaced by `flat`, in the order of `flatten`."""
    items = iter(flat)

    def build(value: Nested) -> Nested:
        if isinstance(value, dict):
            built = {key: build(value[key]) for key in sorted(value)}
            return type(value)((key, built[key]) for key in value)
        return None if value is None else next(items)

    packed = build(structure)
    assert next(items, items) is items, 'more leaves than the structure has'
    return packed
