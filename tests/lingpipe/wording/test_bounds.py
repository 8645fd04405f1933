"""Bounds: what is said of a number that is out of them; tests of Params have more cases."""
import math

import pytest

from lingpipe.wording.bounds import Bounds


@pytest.mark.parametrize(('bounds', 'value', 'violation'), [
    (Bounds(least=1, most=3), 1, None),
    (Bounds(least=1, most=3), 4, ('above 3', '1 to 3')),
    (Bounds(above=0), 0., ('not above 0', 'more than 0')),
    (Bounds(least=0, below=1), 1, ('not below 1', '0 or more and less than 1')),
    (Bounds(), math.nan, ('not a number', 'a finite number')),
    (Bounds(), -math.inf, ('not finite', 'a finite number')),
    (Bounds(is_finite=False), math.inf, None),
    (Bounds(is_finite=False), math.nan, None),
    (Bounds(most=5, is_finite=False), math.nan, ('not a number', '5 or less')),
    (Bounds(), 10 ** 400, ('too large for 64 bits', 'a number from -2^63 to 2^63 - 1')),
    (Bounds(least=1), False, None),   # A bool is no number.
    (Bounds(least=1), 'text', None),
])
def test_a_number_out_of_bounds_is_told_with_what_to_use(bounds, value, violation):
    assert bounds.violation(value) == violation
