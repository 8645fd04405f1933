"""Bounds: which numbers a field accepts. Its type says what a number is, its bounds how large."""
from __future__ import annotations

import typing
from typing import Any, NamedTuple

from lingpipe.hyperparams.errors import ParamsError, show
from lingpipe.hyperparams.paths import join_path


class Bounds(NamedTuple):
    """The limits of every number in the value of a field, in tuples and dicts too.

    Attributes:
      least, most: the smallest and the largest number accepted; None: there is no such limit.
      above, below: limits that are not accepted themselves.
      is_finite: whether infinities and nan are refused.
    """
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    is_finite: bool = True

    def check(self, value: Any, tp: Any, where: str) -> None:
        """Raises ParamsError if a number in `value`, which has the type `tp`, is out of bounds.

        The message begins with the path `where`.
        """
        if isinstance(value, (tuple, dict)):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, item in items:
                self.check(item, None, join_path(where, key))
        elif type(value) in (int, float):
            found = self._violation(value)
            if found:
                or_none = ', or none' if type(None) in typing.get_args(tp) else ''
                raise ParamsError(f'{where}={show(value)} is {found}; {self._rule(value)}{or_none}', where)

    def _rule(self, value: float) -> str:
        """What to write instead of a number that is refused."""
        if self.least is not None and self.most is not None:
            return f'use {self.least} to {self.most}'

        limits = []
        if self.least is not None:
            limits.append(f'{self.least} or more')
        elif self.above is not None:
            limits.append(f'more than {self.above}')
        elif _is_too_large(value):
            limits.append('-2^63 or more')
        if self.most is not None:
            limits.append(f'{self.most} or less')
        elif self.below is not None:
            limits.append(f'less than {self.below}')
        elif _is_too_large(value):
            limits.append('less than 2^63')
        return f'use {" and ".join(limits) or "a finite number"}'

    def _violation(self, value: float) -> str:
        """What is wrong with a number, or '' if it is accepted."""
        if value != value:
            is_refused = self.is_finite or any(limit is not None for limit in self[:4])
            return 'not a number' if is_refused else ''
        if self.least is not None and value < self.least:
            return f'below {self.least}'
        if self.above is not None and value <= self.above:
            return f'not above {self.above}'
        if self.most is not None and value > self.most:
            return f'above {self.most}'
        if self.below is not None and value >= self.below:
            return f'not below {self.below}'
        if self.is_finite and abs(value) == float('inf'):
            return 'not finite'
        return 'too large for 64 bits' if _is_too_large(value) else ''


def _is_too_large(value: float) -> bool:
    """Whether a number is an integer that TensorFlow cannot hold."""
    return isinstance(value, int) and not -2 ** 63 <= value < 2 ** 63


def holds_numbers(tp: Any) -> bool:
    """Whether a value of this type may be or hold a number."""
    return tp in (int, float) or any(map(holds_numbers, typing.get_args(tp)))
