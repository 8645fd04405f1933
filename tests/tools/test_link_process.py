"""A stunnel that a signal ends is started again, but not in a busy loop."""
from __future__ import annotations

import itertools
import subprocess
import types

import pytest

from lingpipe.tools.link_process import LinkProcess


class Host:
    """A host whose stunnel ends as soon as it is started, on a clock that the test sets.

    Attributes:
      now_s: what the clock shows.
      starts: when stunnel was started.
      command: what a shell runs in place of stunnel.
    """

    def __init__(self, command: str):
        self.command = command
        self.now_s = 0.
        self.starts: list[float] = []
        self.link = LinkProcess(self._started, lambda: self.now_s)

    def _started(self) -> subprocess.Popen[bytes]:
        self.starts.append(self.now_s)
        process = subprocess.Popen(['sh', '-c', self.command])
        if 'sleep' not in self.command:
            process.wait()
        return process

    def wait(self, seconds: int) -> None:
        """Looks at the link every quarter of a second."""
        for _ in range(4 * seconds):
            self.link.look()
            self.now_s += 0.25


def test_an_stunnel_that_crashes_at_once_is_given_up_after_pauses(capsys):
    """It was started again without a pause and without an end."""
    host = Host('kill -SEGV $$')
    with pytest.raises(OSError, match=r'crashed 5 times as it was started \(SIGSEGV\), and was '
                                      r'never up; run stunnel -version'):
        host.wait(60)
    assert host.starts == [0, 0, 1.25, 3.5, 7.75]   # A crash is seen after a quarter of a second.
    assert capsys.readouterr().err.splitlines() == [
        'stunnel has ended (SIGSEGV) and is started again',
        'stunnel crashes as soon as it is started (SIGSEGV); it is started again after pauses that '
        'grow to 60 s']


def test_an_stunnel_that_was_up_is_never_given_up(capsys):
    host = Host('exec sleep 1000')
    host.wait(20)
    host.command = 'kill -35 $$'
    host.link.end()
    host.wait(400)
    pauses_s = [later - sooner - 0.25 for sooner, later in itertools.pairwise(host.starts[1:])]
    assert pauses_s == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60]
    assert 'crashes as soon as it is started (signal 35)' in capsys.readouterr().err


def test_an_stunnel_that_crashes_for_a_day_is_still_started_again():
    """A float of the pause overflowed after the 1,025th crash."""
    now_s, num_starts = 0., 0

    def started():
        nonlocal num_starts
        num_starts += 1
        return types.SimpleNamespace(poll=lambda: -11)

    link = LinkProcess(started, lambda: now_s)
    now_s = 20.
    for _ in range(1500):
        link.look()    # A crash, and the end of a pause.
        now_s += 60
        link.look()
        now_s += 0.25
    assert num_starts > 1400


def test_an_stunnel_that_ends_by_itself_is_not_started_again():
    host = Host('exit 3')
    with pytest.raises(OSError, match='stunnel has ended with exit code 3; it has said why'):
        host.link.look()
    assert host.starts == [0]
