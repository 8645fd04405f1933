"""Stop signals: which there are, and that none is lost."""
from __future__ import annotations

import signal
import subprocess
import sys

import pytest

# Another thread catches the signal, since the main thread blocks it.
BEFORE = """
import os, signal, sys, threading, time
from lingpipe.process import environment
from lingpipe.process.stop_signals import StopSignals
with StopSignals() as stop:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    stop.leave_to_next_process()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.2)
    assert not signal.sigpending()
    environment.start_program([sys.executable, '-c', sys.argv[1]])
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
signal.signal(signal.SIGHUP, signal.{handler})
with StopSignals() as stop:
    os.kill(os.getpid(), signal.SIGHUP)
    print(stop.name)
"""


@pytest.mark.parametrize(('handler', 'name'), [('SIG_DFL', 'SIGHUP'), ('SIG_IGN', '')])
def test_a_closed_terminal_asks_for_a_stop_but_not_under_nohup(handler, name):
    process = subprocess.run([sys.executable, '-c', HUP.format(handler=handler)],
                             capture_output=True, text=True, timeout=60, check=False)
    assert (process.stdout, process.stderr, process.returncode) == (f'{name}\n', '', 0)


# The first comes between two steps, the others while TensorFlow computes and no handler runs.
TWICE = """
import ctypes, os, signal, threading, time
from lingpipe.process.stop_signals import REPEATED_S, StopSignals
signal.signal(signal.SIGHUP, signal.SIG_DFL)   # The tests may run under nohup.
with StopSignals() as stop:
    os.kill(os.getpid(), signal.SIGTERM)
    kill = f'sleep {delay}; kill -{second} {{os.getpid()}}; sleep {{2 * REPEATED_S - {delay}}}'
    ctypes.CDLL(None).system(kill.encode())
    print(stop.name, flush=True)
"""


def second_signal(second, delay):
    process = subprocess.run([sys.executable, '-c', TWICE.format(second=second, delay=delay)],
                             capture_output=True, text=True, timeout=60, check=False)
    return process.stdout, process.stderr.splitlines()[:1], process.returncode


def test_a_signal_that_a_launcher_forwards_a_moment_later_is_the_same_request():
    """Whoever kills a whole tree sends it to launcher and trainer, which once ended without a word.

    Everything since the last checkpoint was lost.
    """
    assert second_signal('TERM', 0) == ('SIGTERM\n', [], 0)


ENDS_AT_ONCE = """
import os, signal, threading
from lingpipe.process.stop_signals import StopSignals
with StopSignals() as stop:
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGTERM]).start()
print(stop.name, flush=True)
"""


def test_a_signal_that_comes_again_does_not_end_what_follows_a_quick_stop():
    """The process was killed before it had let go of its workers."""
    process = subprocess.run([sys.executable, '-c', ENDS_AT_ONCE],
                             capture_output=True, text=True, timeout=60, check=False)
    assert (process.stdout, process.stderr, process.returncode) == ('SIGTERM\n', '', 0)


def test_a_second_signal_ends_the_process_and_a_line_says_what_is_lost():
    text = 'a second signal; this run ends at once, without a checkpoint of its last steps'
    assert second_signal('TERM', 1.5) == ('', [f'SIGTERM: {text}'], -signal.SIGTERM)
    assert second_signal('HUP', 0) == ('', [f'SIGHUP: {text}'], -signal.SIGHUP)
