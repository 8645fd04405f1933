"""What differs between two Params."""
from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from lingpipe.hyperparams.fields import ABSENT
from lingpipe.hyperparams.params import Params
from lingpipe.hyperparams.paths import join_path
from lingpipe.hyperparams.text import is_plain, lines
from lingpipe.hyperparams.tree import same


def diff(a: Params, b: Params) -> list[tuple[str, Any, Any]]:
    """(path, value in a, value in b) of all that differs; a change of class once, with the two Params as values."""
    return list(_differences('', a, b))


def diff_text(a: Params, b: Params) -> str:
    """`diff` as the lines of a unified diff; '' if nothing differs."""
    text = ['--- a', '+++ b']
    for path, *values in diff(a, b):
        for sign, value in zip('-+', values, strict=True):
            new = [] if value is ABSENT else list(lines(path, value))
            text += [f'{sign} {line}' for line in (new[:1] if isinstance(value, Params) else new)]
    return '\n'.join(text) + '\n' if text[2:] else ''


def _differences(path: str, a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(a, Params) and type(a) is type(b):
        a, b = a._values(), b._values()
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys([*a, *b]):
            yield from _differences(join_path(path, key), a.get(key, ABSENT), b.get(key, ABSENT))
    elif isinstance(a, tuple) and isinstance(b, tuple) and not (is_plain(a) and is_plain(b)):
        for i, (x, y) in enumerate(zip_longest(a, b, fillvalue=ABSENT)):
            yield from _differences(join_path(path, i), x, y)
    elif not same(a, b):
        yield path, a, b
