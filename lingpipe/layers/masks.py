"""Masks: which positions of a value count, as a value of its own.

Keras hangs the mask of a tensor on the Python object, where the end of a cell loses it. Here the
mask of the value `x` is the value `x.mask`, booleans [b, T] or the like, which the pipeline sends
to its readers like any other. KerasLayers make such masks, are given that of what they read, and
say whether their result has one. What other layers do with the mask of what they read follows from
`Layer.mask_rule`:

    passes    The layer works on each position by itself, so it does not read the mask, and its
              result has the same one: that of the first value it reads which has a mask.
    keeps     Positions see each other, so the layer must read the mask. Its result has the mask of
              the first value that it reads.
    ends      The layer must read the mask, and its result has none.
    takes     The layer is given the mask, and its result has the one that it writes.

A layer that would silently ignore a mask is refused with a ValueError. Any layer can read a mask by
its name, as in `reads={'weight': 'x.mask'}`.
"""
from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TypeVar

from lingpipe.layers.base import Layer
from lingpipe.layers.nested import Nested

V = TypeVar('V')

_SUFFIX = '.mask'


def mask_of(name: str) -> str:
    """The name of the value that is the mask of the value `name`."""
    return name + _SUFFIX


def is_mask_of_any(name: str, names: set[str]) -> bool:
    """Whether `name` is the name of the mask of one of the values `names`."""
    return name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX) in names


def taken(layer: Layer, reads: Mapping[str, str], values: Mapping[str, Nested]) -> dict[str, str]:
    """Argument of fprop -> name of the mask that the layer is given besides what it reads by name.

    Args:
      layer: of any kind.
      reads: argument -> name of the value, as Layer.reads gives it.
      values: everything that has been written, by name.

    Raises:
      ValueError: the layer would ignore a mask.
    """
    if _rule(layer) == 'takes':
        return {argument: mask_of(name) for argument, name in layer.takes_masks(reads).items()
                if argument not in reads and mask_of(name) in values}
    if _rule(layer) == 'passes':
        return {}

    for name in reads.values():
        if mask_of(name) in values and mask_of(name) not in reads.values():
            known = inspect.signature(layer.fprop).parameters
            argument = next((a for a in ('mask', 'weight') if a in known), '')
            remedy = f"set its reads={{'{argument}': '{mask_of(name)}'}}, or " if argument else ''
            raise ValueError(f'{layer.path} reads {name!r}, which has the mask {mask_of(name)!r}, '
                             f'and would leave the mask out; {remedy}set drops_mask=True in the '
                             f'KerasLayer that writes {name!r}.')
    return {}


def after(layer: Layer, reads: Mapping[str, str], values: Mapping[str, V],
          written: Mapping[str, V]) -> dict[str, V]:
    """All values by name once the layer has written `written`, with the masks that they then have.

    Args:
      layer: of any kind.
      reads: argument -> name of the value, as Layer.reads gives it.
      values: everything that was written before, by name.
      written: what the layer writes, by name.
    """
    values_after = {**values, **written}
    for name in written:
        if mask_of(name) not in written:
            values_after.pop(mask_of(name), None)

    rule, sources = _rule(layer), list(reads.values())
    if rule in ('passes', 'keeps'):
        candidates = sources if rule == 'passes' else sources[:1]
        masked = next((name for name in candidates if mask_of(name) in values), None)
        if masked is not None:
            values_after |= {mask_of(name): values[mask_of(masked)] for name in written}
    return values_after


def _rule(layer: Layer) -> str:
    return layer.mask_rule or ('passes' if layer.is_positionwise else 'ends')
