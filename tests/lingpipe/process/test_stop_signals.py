"""Stop signals: which there are, and that none is lost."""
from __future__ import annotations

import subprocess
import sys

import pytest

# Another thread catches the signal, since the main thread blocks it.
BEFORE = """
import os, signal, sys, threading, time
from lingpipe.process.stop_signals import StopSignals
with StopSignals() as stop:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    stop.leave_to_next_process()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.2)
    assert not signal.sigpending()
    os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])
"""
AFTER = """
import os
from lingpipe.process.stop_signals import StopSignals
with StopSignals() as stop:
    print(stop.name, 'LINGPIPE_STOP_SIGNALS' in os.environ)
"""


def test_a_signal_that_another_thread_catches_before_exec_is_not_lost():
    process = subprocess.run([sys.executable, '-c', BEFORE, AFTER], capture_output=True, text=True,
                             timeout=60, check=False)
    assert (process.stdout, process.stderr) == ('SIGTERM False\n', '')


HUP = """
import os, signal
from lingpipe.process.stop_signals import StopSignals
if {ignores}:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
with StopSignals() as stop:
    os.kill(os.getpid(), signal.SIGHUP)
    print(stop.name)
"""


@pytest.mark.parametrize(('ignores', 'name'), [(False, 'SIGHUP'), (True, '')])
def test_a_closed_terminal_asks_for_a_stop_but_not_under_nohup(ignores, name):
    process = subprocess.run([sys.executable, '-c', HUP.format(ignores=ignores)],
                             capture_output=True, text=True, timeout=60, check=False)
    assert (process.stdout, process.stderr, process.returncode) == (f'{name}\n', '', 0)
