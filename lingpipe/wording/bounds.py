"""Bounds: the numbers that a field of Params or a flag of a tool accepts.

They also say what is wrong with any other number, and what to use instead.
"""
from __future__ import annotations

import math
import operator
from typing import NamedTuple

# A kind of limit: whether a number keeps it, what one that does not is, and what to use.
_LIMITS = {
    'least': (operator.ge, 'below {}', '{} or more'),
    'above': (operator.gt, 'not above {}', 'more than {}'),
    'most': (operator.le, 'above {}', '{} or less'),
    'below': (operator.lt, 'not below {}', 'less than {}'),
}


class Bounds(NamedTuple):
    """The bounds of a number.

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

    def violation(self, value: object) -> tuple[str, str] | None:
        """What is wrong with a number, and what to use instead: ('below 1', '1 or more').

        Returns:
          None if the number is accepted, or if the value is not a number. A bool is not a number.
        """
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return None
        limits = {kind: getattr(self, kind) for kind in _LIMITS if getattr(self, kind) is not None}
        rules = [_LIMITS[kind][2].format(limit) for kind, limit in limits.items()]
        rule = ' and '.join(rules) or 'a finite number'
        if limits.keys() == {'least', 'most'}:
            rule = f'{self.least} to {self.most}'

        if value != value:  # Only nan; math.isnan takes no integer of 400 digits.
            return ('not a number', rule) if self.is_finite or limits else None
        for kind, limit in limits.items():
            keeps, violation, _ = _LIMITS[kind]
            if not keeps(value, limit):
                return violation.format(limit), rule
        if isinstance(value, int) and not -2 ** 63 <= value < 2 ** 63:
            return 'too large for 64 bits', 'a number from -2^63 to 2^63 - 1'
        return ('not finite', rule) if self.is_finite and abs(value) == math.inf else None
