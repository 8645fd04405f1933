"""The errors of Params, and the words that they share."""
from __future__ import annotations

import difflib
from collections.abc import Iterable


class ParamsError(ValueError):
    """A mistake in Params or in their text; the message names the whole path from the root.

    `path` is that path alone, or '' if the mistake is in no particular value.
    """

    def __init__(self, message: str, path: str = ''):
        super().__init__(message)
        self.path = path


class UnknownParamError(ParamsError, AttributeError):
    """A name that is no field, entry or item."""


def nearest(name: object, names: Iterable[object], has: str = 'it has') -> str:
    """The end of an error about a wrong name: the nearest right one, or all of them."""
    known = [str(n) for n in names]
    near = difflib.get_close_matches(str(name), known, 1)
    return f'did you mean {near[0]!r}?' if near else f'{has} {", ".join(known) or "none"}'


def show(value: object) -> str:
    """A value in an error: its repr, cut short; a class by its name."""
    return shortened(value.__qualname__ if isinstance(value, type) else repr(value))


def shortened(text: str) -> str:
    """The text, cut at 80 characters."""
    return text if len(text) <= 80 else text[:77] + '...'
