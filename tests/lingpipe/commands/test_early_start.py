"""Early start: the trainer makes devices first if making the Params has started TensorFlow."""
from __future__ import annotations

import sys

import pytest

from lingpipe import cluster
from lingpipe.commands import early_start
from lingpipe.process import environment


class ReplacedError(Exception):
    """What ends a process that another one replaces."""


def too_early() -> int:
    raise cluster.StartedTooEarlyError(3, 1, 'it is initialized')


@pytest.fixture
def command_lines(monkeypatch):
    """The list that gets the flags of every trainer that takes this program's place."""
    found = []

    def start_trainer(flags):
        found.append(flags)
        raise ReplacedError

    monkeypatch.setattr(environment, 'start_trainer', start_trainer)
    yield found
    environment.take('LINGPIPE_CPUS_AND_THREADS')


def test_a_process_of_the_trainer_starts_again_once_and_makes_the_devices_first(
        monkeypatch, command_lines):
    monkeypatch.delitem(sys.modules, 'tensorflow')
    with pytest.raises(ReplacedError):
        early_start.run(too_early, ['--model=mine.Mine'])
    assert command_lines == [['--model=mine.Mine']]

    configured = []
    monkeypatch.setattr(cluster, 'configure', lambda *numbers: configured.append(numbers))
    with pytest.raises(cluster.StartedTooEarlyError):
        early_start.run(too_early, [])
    assert configured == [(3, 1)] and len(command_lines) == 1


def test_a_process_that_had_tensorflow_before_gets_the_error(command_lines):
    with pytest.raises(cluster.StartedTooEarlyError, match=r'start this process again \(in a'):
        early_start.run(too_early, [])
    assert early_start.run(lambda: 7, []) == 7 and not command_lines
