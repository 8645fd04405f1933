"""One thing is not counted as several."""
from __future__ import annotations

import pytest

from lingpipe.wording.counts import are, counted


@pytest.mark.parametrize(('number', 'noun', 'text'), [
    (0, 'cell', '0 cells'), (1, 'cell', '1 cell'), (2, 'cell', '2 cells'),
    (1, 'micro-batch', '1 micro-batch'), (16, 'micro-batch', '16 micro-batches'),
    (3, 'boundary', '3 boundaries'), (2, 'key', '2 keys'), (1024, 'example', '1,024 examples')])
def test_a_count_has_the_plural_only_where_it_is_not_one(number, noun, text):
    assert counted(number, noun) == text


def test_the_verb_is_that_of_the_number():
    assert [are(number) for number in (0, 1, 2)] == ['are', 'is', 'are']
