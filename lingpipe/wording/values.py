"""Values in errors: a value cut short, and the right name for a wrong one."""
from __future__ import annotations

import difflib
from collections.abc import Iterable

_MAX_NAMES = 40   # A network of Keras has hundreds of values.


def nearest(name: object, names: Iterable[object], has: str = 'it has') -> str:
    """The end of an error about a wrong name: the nearest right one, or the first of them."""
    known = [str(n) for n in names]
    if near := difflib.get_close_matches(str(name), known, 1):
        return f'did you mean {near[0]!r}?'
    more = f' and {len(known) - _MAX_NAMES:,} more' if len(known) > _MAX_NAMES else ''
    return f'{has} {", ".join(known[:_MAX_NAMES]) or "none"}{more}'


def show(value: object) -> str:
    """A value in an error: its repr, cut short; a class by its name."""
    return shortened(value.__qualname__ if isinstance(value, type) else repr(value))


def shortened(text: str) -> str:
    """The text, cut at 80 characters."""
    return text if len(text) <= 80 else text[:77] + '...'
