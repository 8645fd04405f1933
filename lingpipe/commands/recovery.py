"""Recovery: a process that loses a worker starts itself again, with the same command, and goes on from the last checkpoint.

TensorFlow can neither drop a lost worker nor end a wait for one, so nothing less than another process helps. It waits for the worker as
any process does at its start (train.worker_timeout_s). A stop signal ends all that: it may come while TensorFlow waits, where Python
calls no handler, and between the two processes, where there is none; so the watchdog's thread looks for it, and it stays blocked from
one process to the next.
"""
from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import IO, Any, NoReturn

import tensorflow as tf

from lingpipe.cluster.client import LostWorkerError
from lingpipe.cluster.watchdog import Watchdog
from lingpipe.commands import device_setup
from lingpipe.process.stop_signals import SIGNALS, StopSignals
from lingpipe.training import logdir
from lingpipe.training.logdir_lock import Lock

_FRUITLESS = 'LINGPIPE_FRUITLESS_STARTS'   # environment variable 'STEP NUMBER': how often it has started again from that step
_MAX_FRUITLESS = 10


class Recovery:
    """Runs something on the devices of an experiment, again and again if workers are lost."""

    def __init__(self, values: Any, argv: Sequence[str], stop: StopSignals | None = None, log_path: str = '',
                 lock_of_logdir: Lock | None = None):
        """
        Args:
          values: the trainer's flags.
          argv: the command.
          stop: what ends the waiting; default: signals do what they do.
          log_path: a file that gets the line which says what was lost; else standard error gets it.
          lock_of_logdir: what this process holds from one start to the next.
        """
        self._values, self._argv, self._stop, self._log_path = values, argv, stop, log_path
        self._lock_of_logdir = lock_of_logdir
        self._lock = threading.Lock()

    def run(self, params: Any, body: Callable[[Watchdog | None], int]) -> int:
        """Finds the devices, sets TensorFlow up, and returns what body(watchdog) does; a worker that is lost makes it begin anew.

        Args:
          params: the experiment's; gets the devices.
          body: tells the watchdog what it does; it gets None if there are no --devices.
        """
        if not self._values.devices:
            device_setup.configure(params)
            return body(None)
        watchdog = Watchdog(params.train.step_timeout_s, self.start_again, self._stop)
        try:
            watchdog.connection = device_setup.place(params, self._values, is_again=_FRUITLESS in os.environ)
            return body(watchdog)
        except LostWorkerError as error:
            lost = error
        except tf.errors.OpError as error:
            found = watchdog.connection.lost(error) if watchdog.connection else None
            if found is None:
                raise
            lost = found
        finally:
            watchdog.stop()
        self.start_again(str(lost))

    def start_again(self, why: str) -> NoReturn:
        """Replaces this process by another with the same command.

        It ends instead when it is to stop (exit code as without a loss), or when _MAX_FRUITLESS starts in a row have found no newer
        checkpoint (exit code 1).
        """
        self._lock.acquire()   # the watchdog and the main thread may come both; there is no way back for the one that comes first
        step = logdir.newest_step(self._values.logdir) or 0
        before, _, number = os.environ.get(_FRUITLESS, '').partition(' ')
        num_starts = int(number) + 1 if before == str(step) else 1
        at = f'{why}; {f"the last checkpoint is of step {step}" if step else "there is no checkpoint yet"}'
        self._end_if_stopped(at)
        if num_starts > _MAX_FRUITLESS:
            self._say(f'{at}: {_MAX_FRUITLESS} starts have not come further: look at the workers')
            os._exit(1)
        self._say(f'{at}: the trainer starts again from there')
        os.environ[_FRUITLESS] = f'{step} {num_starts}'
        for name in os.listdir('/proc/self/fd') if os.path.isdir('/proc/self/fd') else ():
            if int(name) > 2:
                with contextlib.suppress(OSError):
                    fcntl.fcntl(int(name), fcntl.F_SETFD, fcntl.FD_CLOEXEC)   # a server's socket must not outlive it
        if self._lock_of_logdir:
            self._lock_of_logdir.keep()
        if self._stop:
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)   # what comes from now on waits for the next process's StopSignals
            self._end_if_stopped(at)
        os.execv(sys.executable, [sys.executable, '-m', 'lingpipe.trainer', *self._argv[1:]])

    def _end_if_stopped(self, at: str) -> None:
        if self._stop and self._stop.name:
            self._say(f'{self._stop.name}: stopped; {at}, and no newer one can be written: the same command goes on from there')
            os._exit(128 + signal.Signals[self._stop.name].value)

    def _say(self, line: str) -> None:
        """Tells the log and whoever looks, if there is room and anybody."""
        if self._log_path:
            with contextlib.suppress(OSError), open(self._log_path, 'a', encoding='utf-8') as file:
                file.write(line + '\n')
        out: IO[str] = sys.stdout if self._log_path else sys.stderr
        with contextlib.suppress(OSError, ValueError):
            print(line, file=out, flush=True)
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
