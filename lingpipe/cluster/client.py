"""Client: the controller's connection to its workers, and what is lost with it.

A worker cannot know that its controller was killed, and so keeps the weights in memory. Therefore a
controller first makes each worker start again: an Abort op ends the process of the server, and the
process above it (server.py) starts another. A worker thus serves the controller that came last.

A worker also keeps the name of its controller, in a variable that every controller can read. So a
controller that has lost a worker learns which controller took it. It may come back before the new
controller has told the new server its name, and claim that server first. So a new controller makes
a server that another one has claimed start again, and one that comes back gives way.
"""
from __future__ import annotations

import atexit
import contextlib
import os
import re
import threading
import time
from collections.abc import Iterable, Sequence

import tensorflow as tf

from lingpipe.cluster import ports, workers
from lingpipe.cluster.address_filter import Guard
from lingpipe.cluster.at_once import at_once
from lingpipe.process.error_text import sentence
from lingpipe.process.process_name import this_process
from lingpipe.process.tensorflow_settings import HOME

# Texts in the messages of errors of other types that follow from a broken connection.
_BROKEN = re.compile('poisoned|RecvFromRemote|Socket closed|'
                     r'\A(UNAVAILABLE|ABORTED|CANCELLED|DEADLINE_EXCEEDED): ')
# If several devices have failed in one call, the message lists their errors, each after this.
_ROOT = re.compile(r'^ +\(\d+\) (?=[A-Z_]+: )', re.MULTILINE)
_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError,
         tf.errors.DeadlineExceededError)


class LostWorkerError(OSError):
    """A worker, or the connection to it, is gone; the run can go on from its last checkpoint."""


def wait_for_assignments(variables: Iterable[tf.Variable]) -> None:
    """Waits until workers have made what single ops have assigned to these variables so far.

    A worker runs single ops in the order of the calls, but the calls return at once. Without
    waiting, a graph that assigns to the variables itself, which is sent another way, could overtake
    the ops and be overwritten by them.

    The obvious way is to ask an op of a worker for the shape of its value. But TensorFlow does not
    wait if it can tell the shape before the op has run. So the value of one more op is fetched, one
    that the worker runs: a constant comes from this process.
    """
    hosts = {host_of(variable.device) for variable in variables if is_on_worker(variable.device)}
    last_values = []
    for host in sorted(hosts):   # All ops are called before one is waited for.
        with tf.device(host):
            last_values.append(tf.raw_ops.Fill(dims=[], value=0.))
    for value in last_values:
        value.numpy()


def device_of(value: tf.Tensor) -> str:
    """Returns the device that has a value in its memory, once the op that makes it has run.

    Raises:
      tf.errors.UnavailableError: the worker that should have it is lost. TensorFlow raises a
        ValueError, as for a wrong argument.
    """
    try:
        # TensorFlow waits for the device of a value with Python's lock in its hands. Then no other
        # thread runs, and the watchdog sees nothing. For the shape it waits without the lock.
        value.get_shape()
        return str(value.device)
    except ValueError as error:
        raise tf.errors.UnavailableError(None, None, str(error)) from error


def process_of(value: tf.Tensor) -> str:
    """Returns the process that has a value in its memory: '/job:worker/replica:0/task:1'.

    Raises:
      tf.errors.UnavailableError: the worker that should have it is lost.
    """
    return device_of(value).partition('/device:')[0]


def host_of(device: str) -> str:
    """Returns the first CPU of the process that has a device."""
    spec = tf.DeviceSpec.from_string(device)
    return str(spec.replace(device_type='CPU', device_index=0).to_string())


def is_on_worker(device: str) -> bool:
    """Whether a device is in another process than this one."""
    return bool(tf.DeviceSpec.from_string(device).job == 'worker')


def done_after(*ops: tf.Operation) -> tf.Tensor:
    """In a graph: returns a tensor of this process that exists once the ops have run."""
    with tf.device(None), tf.control_dependencies(ops), tf.device(HOME):   # HOME names no task.
        return tf.constant(True)


def is_broken(error: tf.errors.OpError) -> bool:
    """Whether an error says that a worker, or the connection to it, is gone.

    An op that fails on one device cuts the others off, and either error may come first. So all
    errors of a message must say it.
    """
    roots = _ROOT.split(error.message)[1:] or [error.message]
    return isinstance(error, _LOST) or all(map(_BROKEN.search, roots))


class Connection:
    """The connection of this process to its workers.

    Attributes:
      workers: by task, as they were when the connection was made.
    """

    def __init__(self, addresses: Sequence[str], own_address: str = '', wait_s: float = 60.,
                 name: str = '', is_again: bool = False):
        """
        Args:
          addresses: 'host:port' of the workers.
          own_address: 'host:port' at which the workers reach this process; chosen by default.
          wait_s: time limit for the whole connection.
          name: the name of this process, for others that ask a worker which controller it serves.
          is_again: whether this process has had the workers before. If so, a worker that serves
            another process by now is left to it.

        Raises:
          OSError: a worker does not answer in time or serves another process, or this process
            cannot listen at own_address.
          LostWorkerError: a worker answered once and then no more.
          ValueError: a host is not known, or workers cannot reach own_address.
        """
        self._addresses, self._name = addresses, name or this_process()
        if own_address:
            # Checked first, or workers would leave their trainer for one that cannot begin.
            _check_own_address(own_address)
            ports.reached_at(own_address, list(addresses))

        deadline_s = time.monotonic() + wait_s
        self.workers = self._started_workers(deadline_s, wait_s, is_again)
        self._process = os.getpid()
        atexit.register(self._let_go_at_exit)
        listening_at = own_address or ports.own_address(list(addresses))
        self._own_address = ports.reached_at(listening_at, list(addresses))
        host, port = ports.split_address(listening_at)
        guard = Guard(port, host)
        _connect(addresses, self._own_address, deadline_s)
        guard.check()

    def connect_again(self, wait_s: float) -> None:
        """Connects once more, to workers whose memory is empty again. What was on them is lost.

        Tensors of this process, and the functions that it has traced, stay as they are.

        Raises:
          OSError: as of the constructor, if the process has had the workers before.
          LostWorkerError: a worker answered once and then no more, or has other devices now.
        """
        deadline_s = time.monotonic() + wait_s

        def again(task: int, before: workers.Worker) -> workers.Worker:
            """The worker, with empty memory; others start again while a lost one is awaited."""
            worker = workers.wait_for_worker(before.address, task, deadline_s, wait_s)
            if worker.incarnation != before.incarnation:   # It has started again by itself.
                name = workers.claim(worker.address, self._name)
                self._check_not_taken(task, name)
                if name:
                    return worker
            return self._started_again(task, worker, deadline_s, wait_s, is_again=True)

        devices_before = [worker.devices for worker in self.workers]
        self.workers = at_once(again, list(enumerate(self.workers)))
        if [worker.devices for worker in self.workers] != devices_before:
            raise LostWorkerError('the workers have other devices than before')
        _connect(self._addresses, self._own_address, deadline_s)

    def let_go(self) -> None:
        """Tells the workers that this process needs them no longer.

        A worker that is to end waits for that (server.py). A process that ends does it by itself.
        """
        atexit.unregister(self._let_go_at_exit)
        at_once(self._let_go_of, [(worker,) for worker in self.workers])

    def _let_go_at_exit(self) -> None:
        """Lets go of the workers one by one, since Python starts no threads any more."""
        if os.getpid() == self._process:   # Forks have the same functions to call at their end.
            for worker in self.workers:
                self._let_go_of(worker)

    def _let_go_of(self, worker: workers.Worker) -> None:
        """Lets go of a worker, unless it has started again, perhaps for somebody else."""
        with contextlib.suppress(OSError):
            if workers.ask(worker.address).incarnation == worker.incarnation:
                workers.let_go(worker.address, self._name)

    def _started_workers(self, deadline_s: float, wait_s: float, is_again: bool
                         ) -> list[workers.Worker]:
        """Makes all workers start again, with empty memory, and tells them whom they serve."""
        workers_before = workers.wait_for(self._addresses, wait_s)
        if is_again:   # All are asked first, so that none is ended if another one was taken.
            served = at_once(workers.served_by, [(address,) for address in self._addresses])
            for task, name in enumerate(served):
                self._check_not_taken(task, name)

        return at_once(self._started_again, [(task, worker, deadline_s, wait_s, is_again)
                                             for task, worker in enumerate(workers_before)])

    def _started_again(self, task: int, worker: workers.Worker, deadline_s: float, wait_s: float,
                       is_again: bool) -> workers.Worker:
        """Ends the server until a new one serves this process; a newcomer does not give way."""
        while True:
            if is_again:
                name = workers.claim(worker.address, self._name, ends_server=True)
                self._check_not_taken(task, name)
            else:
                workers.end_server(worker.address)
            worker = workers.wait_for_worker(
                worker.address, task, deadline_s, wait_s, worker.incarnation)
            if workers.claim(worker.address, self._name) == self._name:
                return worker
            if time.monotonic() > deadline_s:
                raise LostWorkerError(f'worker {task}, {worker.address}, has started again')

    def _check_not_taken(self, task: int, name: str) -> None:
        """Raises OSError if a worker serves another controller, whose name is `name`."""
        if name not in ('', self._name):
            raise OSError(f'worker {task}, {self._addresses[task]}, was taken by {name}; wait for '
                          'the end of that one or stop it, or name other workers in --devices: '
                          'the same command goes on from the last checkpoint.')

    def silent(self) -> str:
        """Describes the first worker that does not answer or has started again; '' if none."""
        return next(filter(None, at_once(self._why_lost, list(enumerate(self.workers)))), '')

    def _why_lost(self, task: int, worker: workers.Worker) -> str:
        """Says that a worker does not answer or has started again; '' if neither."""
        try:
            now = workers.ask(worker.address, task)
        except OSError as error:
            return f'worker {task}, {worker.address}, does not answer ({error})'
        if now.incarnation == worker.incarnation:
            return ''
        if taker := self._taker(worker):
            return f'worker {task}, {worker.address}, was taken by {taker}'
        return f'worker {task}, {worker.address}, has started again and lost its weights'

    def _taker(self, worker: workers.Worker) -> str:
        """Returns the name of another controller that the worker serves; '' if there is none."""
        name = workers.served_by(worker.address)
        return name if name != self._name else ''

    def lost(self, error: tf.errors.OpError) -> LostWorkerError | None:
        """Returns the error to raise if TensorFlow's error means a lost worker, or else None."""
        silent = self.silent()
        if silent:
            return LostWorkerError(silent)
        if is_broken(error):
            return LostWorkerError('the connection to a worker broke '
                                   f'({sentence(error)})')
        return None


def _check_own_address(address: str) -> None:
    """Raises OSError if this process cannot listen at 'host:port'."""
    try:
        ports.check_free(*ports.split_address(address))
    except OSError as error:
        raise OSError(f'the trainer cannot listen at {address}: {error.strerror or error}; choose '
                      'another --address.') from error


def _connect(addresses: Sequence[str], own_address: str, deadline_s: float) -> None:
    """Makes this process's TensorFlow a task of a cluster; it may be one of another already.

    Connecting has no time limit of its own, so a thread does it.
    """
    limit_s = max(workers.ASK_S, deadline_s - time.monotonic())
    # Without an address, TensorFlow would tell all workers that this process is at localhost.
    spec = tf.train.ClusterSpec({'worker': list(addresses), 'localhost': [own_address]})
    outcome: list[Exception | None] = []

    def connect() -> None:
        """Connects, and tells the outcome, which is None or an error."""
        try:
            tf.config.experimental_connect_to_cluster(spec, job_name='localhost')
            tf.config.list_logical_devices()   # connects
            outcome.append(None)
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=connect, name='connect', daemon=True)
    thread.start()
    thread.join(limit_s)

    if not outcome:
        raise LostWorkerError(
            f'a worker was lost while connecting (it took longer than {limit_s:.0f} s)')
    error = outcome[0]
    if isinstance(error, tf.errors.OpError):
        raise LostWorkerError(
            f'a worker was lost while connecting ({sentence(error)})') from error
    if error:
        raise error
