"""Returned: which workers that were missing a run may take in."""
from __future__ import annotations

import threading
import time

import pytest

from lingpipe.cluster import returned, workers
from lingpipe.cluster.returned import ReturnedWorkers


def test_the_first_that_answers_and_serves_nobody_else_is_named(
        monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    is_back = threading.Event()

    def ask(address: str) -> None:
        if address == 'a:1' and not is_back.is_set():
            raise OSError('no connection')
        if address == 'b:2':
            asked.set()

    monkeypatch.setattr(returned, 'ASK_EVERY_S', 0.001)
    monkeypatch.setattr(workers, 'ask', ask)
    monkeypatch.setattr(workers, 'served_by',
                        lambda address: 'process 8' if address == 'b:2' else '')
    found = ReturnedWorkers(['a:1', 'b:2'], 'process 7', not_before_s=0.)
    assert asked.wait(60.)
    assert found.text == ''   # Another process has b.
    is_back.set()
    found.wait(60.)
    assert found.text == 'worker a:1 answers again'


def test_none_is_asked_before_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, 'ask', lambda address: pytest.fail('it is asked'))
    found = ReturnedWorkers(['a:1'], 'process 7', not_before_s=time.monotonic() + 1e6)
    found.stop()
    assert found.text == ''
