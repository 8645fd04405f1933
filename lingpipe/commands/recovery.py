"""Recovery: a process that loses a worker waits for it, and goes on from the last checkpoint.

A run connects to its workers again, and keeps the graphs that it has traced, which takes a third of
the time of a start (pipeline/execution/renewal.py). In all other cases the process starts itself
again, with the same command. It does so too if its main thread waits in TensorFlow, which cannot
end a wait for a lost worker. A script or a notebook cannot start again without its user, so there
an error says what was lost. Either way, the worker is waited for as at any start
(train.worker_timeout_s).

A stop signal ends all that. It may come while TensorFlow waits, where Python calls no handler, and
between the two processes, where there is none. So the watchdog's thread looks for it, and it stays
blocked, or in a pipe, from one process to the next.
"""
from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, NoReturn, TypeVar

import tensorflow as tf

from lingpipe.cluster.client import Connection, LostWorkerError
from lingpipe.cluster.returned import ReturnedWorkerError, ReturnedWorkers
from lingpipe.cluster.watchdog import Watchdog
from lingpipe.commands import device_setup
from lingpipe.commands.device_setup import Placement
from lingpipe.commands.run_options import RunOptions
from lingpipe.pipeline.execution.renewal import NotRenewableError
from lingpipe.process import environment
from lingpipe.process.error_text import sentence
from lingpipe.process.stop_signals import StopSignals
from lingpipe.training import newest_checkpoint
from lingpipe.training.experiment import Experiment
from lingpipe.training.logdir_lock import Lock
from lingpipe.training.site import Site

# Environment variable 'STEP NUMBER': how often the process has started again from that step.
_FRUITLESS = 'LINGPIPE_FRUITLESS_STARTS'
_MAX_FRUITLESS = 10

# Environment variable: when workers were taken in, by time.monotonic(), the same clock in the next
# process. For _PAUSE times train.elastic_after_s no others are: a worker that comes and goes would
# cost more than it does.
_TAKEN_IN_S = 'LINGPIPE_TAKEN_IN_S'
_PAUSE = 10

T = TypeVar('T')


def has_started_again() -> bool:
    """Whether this process has taken the place of one that lost a worker."""
    return bool(environment.left(_FRUITLESS))


class Recovery:
    """Runs something on the devices of an experiment, again and again if workers are lost."""

    def __init__(self, options: RunOptions, stop: StopSignals | None = None, log_path: str = '',
                 lock_of_logdir: Lock | None = None, starts_again: bool = True):
        """
        Args:
          options: the trainer's.
          stop: what ends the waiting; default: signals do what they do.
          log_path: a file that gets the line which says what was lost; '': standard error gets it.
          lock_of_logdir: what this process holds from one start to the next.
          starts_again: whether the process is the trainer's own; if not, a lost worker is an error.
        """
        self._options, self._stop, self._log_path = options, stop, log_path
        self._lock_of_logdir, self._starts_again = lock_of_logdir, starts_again
        self._lock = threading.Lock()
        self._connection: Connection | None = None   # to the workers that this process has now

    def run(self, params: Experiment.Params, place: Callable[[], Placement],
            body: Callable[[Site], T], place_again: Callable[[], Placement] | None = None) -> T:
        """Finds the devices, and returns what `body` makes of them.

        If a worker is lost, `body` is called again once the workers are back, or another process
        with the same command takes the place of this one.

        Args:
          params: the experiment's.
          place: finds the devices, with TensorFlow set up for them.
          body: tells the site's watchdog what it does.
          place_again: connects to the same devices once more, or raises NotRenewableError. None:
            only another process can do that.

        Raises:
          OSError: a worker is lost, and this process does not start again.
        """
        if not self._options.devices:
            return body(Site(place().devices))
        try:
            return self._run_once(params, place, body)
        except LostWorkerError as error:
            if not self._starts_again:
                raise OSError(self._text_for_users(str(error))) from error
            why = str(error)   # The error itself would keep alive what has failed.
        if place_again is None:
            self.start_again(why)
        return self._run_again(params, place_again, body, why)

    def _run_again(self, params: Experiment.Params, place_again: Callable[[], Placement],
                   body: Callable[[Site], T], why: str) -> T:
        """Does what `run` does, after a worker was lost, as long as this process can."""
        while True:
            with self._lock:
                at = self._begin_again(why)
            try:
                return self._run_once(params, place_again, body)
            except LostWorkerError as error:
                why = str(error)
            except NotRenewableError:
                self._replace_process(at)
            except tf.errors.OpError as error:   # Another process may not have it.
                self.start_again(sentence(error))

    def _run_once(self, params: Experiment.Params, place: Callable[[], Placement],
                  body: Callable[[Site], T]) -> T:
        """Does what `run` does, until a worker is lost.

        Raises:
          LostWorkerError: a worker is lost, and the main thread can go on.
          NotRenewableError: raised by `place`.
        """
        watchdog = Watchdog(params.train.step_timeout_s, self._give_up, self._stop)
        returned: ReturnedWorkers | None = None
        try:
            placement = place()
            watchdog.connection = self._connection = placement.connection
            if placement.missing and self._starts_again:
                returned = self._returned(placement.missing, params)
            return body(Site(placement.devices, watchdog, placement.pipeline, returned))
        except ReturnedWorkerError as error:
            environment.leave(_TAKEN_IN_S, str(time.monotonic()))
            self.start_again(str(error))
        except tf.errors.OpError as error:
            connection = watchdog.connection
            lost_worker = connection.lost(error) if connection else None
            if lost_worker is None:
                raise
            raise lost_worker from error
        finally:
            watchdog.stop()
            if returned:
                returned.stop()

    def _returned(self, missing: Sequence[str], params: Experiment.Params) -> ReturnedWorkers:
        """Looks for workers that are missing, but not soon after others were taken in."""
        taken_in_s = float(environment.left(_TAKEN_IN_S) or '-inf')
        pause_s = _PAUSE * (params.train.elastic_after_s or 0.)
        return ReturnedWorkers(missing, device_setup.name_for_workers(self._options),
                               taken_in_s + pause_s)

    def _give_up(self, why: str) -> NoReturn:
        """In the watchdog's thread: starts again, or ends the process, which waits for ever."""
        if not self._starts_again:
            self._say(self._text_for_users(why))
            os._exit(1)
        self.start_again(why)

    def _text_for_users(self, why: str) -> str:
        return (f'{why}; {self._newest_text()}: start this process again (in a notebook: the '
                f'kernel), and the run goes on.')

    def _newest_text(self) -> str:
        step = newest_checkpoint.newest_step(self._options.logdir)
        return f'the last checkpoint is of step {step}' if step else 'there is no checkpoint yet'

    def start_again(self, why: str) -> NoReturn:
        """Replaces this process by another with the same command.

        It ends instead when it is to stop (exit code as without a loss), or when _MAX_FRUITLESS
        starts in a row have found no newer checkpoint (exit code 1).
        """
        # The watchdog and the main thread may both come here. The second waits for ever.
        self._lock.acquire()
        self._replace_process(self._begin_again(why))

    def _begin_again(self, why: str) -> str:
        """Says that the run goes on from the last checkpoint, unless it is to end here.

        Returns:
          What happened, and which checkpoint is the last.
        """
        step = newest_checkpoint.newest_step(self._options.logdir) or 0
        at = f'{why}; {self._newest_text()}'
        self._end_if_stopped(at)
        self._count_start(step, at)
        self._say(f'{at}: the trainer starts again{" from there" if step else ""}')
        return at

    def _replace_process(self, at: str) -> NoReturn:
        """Replaces this process by another with the same command, unless it is to end."""
        _close_files_on_exec()
        if self._lock_of_logdir:
            self._lock_of_logdir.keep()
        if self._stop:
            self._stop.leave_to_next_process()
            self._end_if_stopped(at)
        environment.start_trainer(self._options.command_line)

    def _count_start(self, step: int, at: str) -> None:
        """Leaves the number of starts from `step` to the next process; ends after too many."""
        step_before, _, number = environment.left(_FRUITLESS).partition(' ')
        num_starts = int(number) + 1 if step_before == str(step) else 1
        if num_starts > _MAX_FRUITLESS:
            self._say(f'{at}: {_MAX_FRUITLESS} starts have not come further: look at the workers')
            os._exit(1)
        environment.leave(_FRUITLESS, f'{step} {num_starts}')

    def _end_if_stopped(self, at: str) -> None:
        """Ends this process if a stop signal came, with the exit code that shells expect."""
        if self._stop and self._stop.name:
            self._say(f'{self._stop.name}: stopped; {at}, and no newer one can be written: the '
                      f'same command goes on from there')
            if self._connection:
                self._connection.let_go()
            os._exit(128 + signal.Signals[self._stop.name].value)

    def _say(self, line: str) -> None:
        """Tells the log and whoever looks, if there is room and anybody."""
        if self._log_path:
            with contextlib.suppress(OSError), open(self._log_path, 'a', encoding='utf-8') as file:
                file.write(line + '\n')
        out: IO[str] = sys.stdout if self._log_path else sys.stderr
        with contextlib.suppress(OSError, ValueError):
            print(line, file=out, flush=True)


def _close_files_on_exec() -> None:
    """Lets no open file but the standard ones outlive this process, such as a server's socket."""
    numbers = os.listdir('/proc/self/fd') if os.path.isdir('/proc/self/fd') else []
    for number in map(int, numbers):
        if number > 2:
            with contextlib.suppress(OSError):
                fcntl.fcntl(number, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
