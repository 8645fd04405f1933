"""Early start: the trainer makes devices first if making the Params has started TensorFlow."""
from __future__ import annotations

import os
import sys

import pytest

from lingpipe import cluster
from lingpipe.commands import early_start


class ReplacedError(Exception):
    """What ends a process that another one replaces."""


def too_early() -> int:
    raise cluster.StartedTooEarlyError(3, 1, 'it is initialized')


@pytest.fixture
def command_lines(monkeypatch):
    """Returns the list that gets the command line of every process that replaces this one."""
    monkeypatch.delenv('LINGPIPE_CPUS_AND_THREADS', raising=False)
    found = []

    def execv(path, command_line):
        found.append(command_line)
        raise ReplacedError

    monkeypatch.setattr(os, 'execv', execv)
    return found


def test_a_process_of_the_trainer_starts_again_once_and_makes_the_devices_first(
        monkeypatch, command_lines):
    monkeypatch.delitem(sys.modules, 'tensorflow')
    monkeypatch.setenv('LINGPIPE_CPUS_AND_THREADS', '')
    monkeypatch.delenv('LINGPIPE_CPUS_AND_THREADS')
    with pytest.raises(ReplacedError):
        early_start.run(too_early, ['--model=mine.Mine'])
    assert command_lines == [[sys.executable, '-m', 'lingpipe.trainer', '--model=mine.Mine']]

    configured = []
    monkeypatch.setattr(cluster, 'configure', lambda *numbers: configured.append(numbers))
    with pytest.raises(cluster.StartedTooEarlyError):
        early_start.run(too_early, [])
    assert configured == [(3, 1)] and len(command_lines) == 1


def test_a_process_that_had_tensorflow_before_gets_the_error(command_lines):
    with pytest.raises(cluster.StartedTooEarlyError, match=r'start this process again \(in a'):
        early_start.run(too_early, [])
    assert early_start.run(lambda: 7, []) == 7 and not command_lines
