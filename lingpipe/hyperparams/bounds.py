"""Bounds: which numbers a field accepts. Its type says what a number is, its bounds how large."""
from __future__ import annotations

import math
import operator
import typing
from typing import Any, NamedTuple

from lingpipe.hyperparams.errors import ParamsError, show
from lingpipe.hyperparams.paths import join_path

# A kind of limit: whether a number keeps it, what one that does not is, and what to use.
_KINDS = {
    'least': (operator.ge, 'below {}', '{} or more'),
    'above': (operator.gt, 'not above {}', 'more than {}'),
    'most': (operator.le, 'above {}', '{} or less'),
    'below': (operator.lt, 'not below {}', 'less than {}'),
}


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

    def check(self, value: object, tp: Any, where: str) -> None:
        """Raises ParamsError if a number in `value`, which has the type `tp`, is out of bounds.

        The message begins with the path `where`.
        """
        if isinstance(value, (tuple, dict)):
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                self.check(item, None, join_path(where, key))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            violation = self._violation(value)
            if violation:
                or_none = ', or none' if type(None) in typing.get_args(tp) else ''
                raise ParamsError(f'{where}={show(value)} is {violation}; '
                                  f'use {self._rule(value)}{or_none}', where)

    def _violation(self, number: float) -> str:
        """What is wrong with a number, or '' if it is accepted."""
        limits = self._limits()
        if number != number:  # Only nan; math.isnan takes no integer of 400 digits.
            return 'not a number' if self.is_finite or limits else ''
        for kind, limit in limits.items():
            keeps, violation, _ = _KINDS[kind]
            if not keeps(number, limit):
                return violation.format(limit)
        if self.is_finite and abs(number) == math.inf:
            return 'not finite'
        return 'too large for 64 bits' if _is_too_large(number) else ''

    def _rule(self, number: float) -> str:
        """What to use instead of a number that is refused."""
        limits: dict[str, float | str] = {**self._limits()}
        if limits.keys() == {'least', 'most'}:
            return f'{self.least} to {self.most}'
        if _is_too_large(number) and not limits.keys() & {'least', 'above'}:
            limits['least'] = '-2^63'
        if _is_too_large(number) and not limits.keys() & {'most', 'below'}:
            limits['below'] = '2^63'
        rules = [_KINDS[kind][2].format(limits[kind]) for kind in _KINDS if kind in limits]
        return ' and '.join(rules) or 'a finite number'

    def _limits(self) -> dict[str, float]:
        """The limits that are set, by kind, in the order in which they are checked."""
        limits = {kind: getattr(self, kind) for kind in _KINDS}
        return {kind: limit for kind, limit in limits.items() if limit is not None}


def _is_too_large(number: float) -> bool:
    """Whether a number is an integer that TensorFlow cannot hold."""
    return isinstance(number, int) and not -2 ** 63 <= number < 2 ** 63


def holds_numbers(tp: Any) -> bool:
    """Whether a value of this type may be or hold a number."""
    return tp in (int, float) or any(map(holds_numbers, typing.get_args(tp)))
