"""Parts: each process writes its own variables, beside the others and a few at a time."""
from __future__ import annotations

import pytest

from lingpipe.checkpoint.parts import Part, rounds

KINDS = {key: {'shape': [1000], 'dtype': 'float32'} for key in 'abcdef'}


def test_processes_write_their_own_variables_at_the_same_time(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('lingpipe.checkpoint.parts.CHUNK_BYTES', (40_000, 1 << 28))
    hosts = {'b': 'one', 'c': 'two', 'd': 'one', 'f': 'one'}
    assert rounds(KINDS, hosts) == [
        [Part('', ['a', 'e']), Part('one', ['b', 'd']), Part('two', ['c'])], [Part('one', ['f'])]]


def test_all_variables_of_one_process_are_in_one_part_if_they_are_small() -> None:
    assert rounds(KINDS, {}) == [[Part('', [*'abcdef'])]]
    assert rounds({}, {}) == []
