"""Client: the controller's side of a cluster.

It waits for workers, connects to them, and tells the loss of a worker from other errors.

A worker cannot know that its controller was killed, and so keeps the weights in memory. Therefore a
controller first makes each worker start again: an Abort op ends the process of the server, and the
process above it (server.py) starts another. A worker thus serves the controller that came last.

A worker also keeps the name of its controller, in a variable that every controller can read. So a
controller that has lost a worker learns which controller took it.
"""
from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
import threading
import time
from collections.abc import Iterable, Sequence

import tensorflow as tf

from lingpipe.cluster import ports, services
from lingpipe.cluster.address_filter import Guard
from lingpipe.process import closed_pipe
from lingpipe.process.process_name import this_process

_ASK_S = 5.0           # time limit for one answer of a worker
_BETWEEN_S = 0.2       # time between two attempts
_TELL_AFTER_S = 3.0    # after waiting so long, a line says what for

# Words in the messages of other errors that follow from a broken connection.
_BROKEN = re.compile('poisoned|RecvFromRemote|Socket closed')
_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError,
         tf.errors.DeadlineExceededError)


class LostWorkerError(OSError):
    """A worker, or the connection to it, is gone; the run can go on from its last checkpoint."""


@dataclasses.dataclass(frozen=True)
class Worker:
    """A worker, as it has described itself.

    Attributes:
      address: 'host:port'.
      devices: full names of its GPUs or TPU cores, or else of its CPU devices.
      others: full names of its other devices.
      incarnation: a number that is different after each start.
    """
    address: str
    devices: tuple[str, ...]
    others: tuple[str, ...]
    incarnation: int


def wait_for(addresses: Sequence[str], wait_s: float) -> list[Worker]:
    """Asks all workers until each has answered, and returns them in the order of their tasks.

    Raises:
      OSError: one does not answer within wait_s.
      ValueError: an address is named twice.
    """
    for address in addresses:
        if addresses.count(address) > 1:
            raise ValueError(f'--devices names the worker {address} twice; name each once, as '
                             f'2*{address} if it is to have two cells a device.')
    deadline_s = time.monotonic() + wait_s
    return [_wait(address, task, deadline_s, wait_s) for task, address in enumerate(addresses)]


def _wait(address: str, task: int, deadline_s: float, wait_s: float,
          but_not: int | None = None) -> Worker:
    """Returns the worker once it answers and is not the incarnation `but_not`."""
    why = ''
    has_told = False
    while True:
        left_s = deadline_s - time.monotonic()
        try:
            worker = ask(address, task, max(0.1, min(_ASK_S, left_s)))
            if worker.incarnation != but_not:
                return worker
            why = 'it was told to start again and did not'
        except OSError as error:
            why = str(error)

        if left_s < wait_s - _TELL_AFTER_S and not has_told:
            has_told = True
            closed_pipe.say(f'waiting up to {wait_s:g} s for worker {task}, {address} ({why})',
                            sys.stderr)
        if left_s <= 0:
            raise OSError(f'worker {task}, {address}, does not answer within {wait_s:g} s ({why}); '
                          f'start it there with --mode=worker --address={address}, or correct '
                          '--devices.')
        time.sleep(min(_BETWEEN_S, max(0., left_s)))


def ask(address: str, task: int = 0, timeout_s: float = _ASK_S) -> Worker:
    """Returns the present state of one worker.

    Raises:
      OSError: the worker does not answer in time; the message is a few words.
    """
    devices = services.devices(address, timeout_s)
    names_by_kind: dict[str, list[str]] = {}
    for device in devices:
        # The controller will know the device by this name.
        suffix = device.name[device.name.index('/device:'):]
        name = f'/job:worker/replica:0/task:{task}{suffix}'
        names_by_kind.setdefault(device.device_type, []).append(name)

    chosen = (names_by_kind.get('TPU') or names_by_kind.get('GPU')
              or names_by_kind.get('CPU', []))
    others = [name for names in names_by_kind.values() for name in names if name not in chosen]
    incarnation = devices[0].incarnation if devices else 0
    return Worker(address, tuple(chosen), tuple(others), incarnation)


def wait_for_ops(values: Iterable[tf.Tensor]) -> None:
    """Waits until workers have run the ops that made these values, and all ops before them.

    A worker runs single ops in the order of the calls, but the calls return at once. Without
    waiting, the next step, which is sent another way, can overtake the ops.
    """
    last_by_process = {process_of(value): value for value in values}
    for value in last_by_process.values():
        value.get_shape()   # it is known only when the op has run


def process_of(value: tf.Tensor) -> str:
    """Returns the process that has a value in its memory: '/job:worker/replica:0/task:1'."""
    return value.device.partition('/device:')[0]   # type: ignore[no-any-return]


class Connection:
    """The connection of this process to its workers.

    A process can make one connection in its life, since TensorFlow cannot undo it.

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
        """
        self._name = name or this_process()
        if own_address:
            # Checked first, or workers would leave their trainer for one that cannot begin.
            _check_own_address(own_address)

        deadline_s = time.monotonic() + wait_s
        workers_before = wait_for(addresses, wait_s)
        for task, worker in enumerate(workers_before):
            if is_again and (taker := self._taker(worker)):
                raise OSError(f'worker {task}, {worker.address}, was taken by {taker}; wait for '
                              'the end of that one or stop it, or name other workers in --devices: '
                              'the same command goes on from the last checkpoint.')

        for worker in workers_before:
            _end_server(worker)
        self.workers: list[Worker] = []
        for task, worker in enumerate(workers_before):
            self.workers.append(
                _wait(worker.address, task, deadline_s, wait_s, worker.incarnation))
            _give_name(worker.address, self._name)

        own_address = own_address or ports.own_address(list(addresses))
        _connect(addresses, own_address, max(_ASK_S, deadline_s - time.monotonic()))

    def silent(self) -> str:
        """Describes the first worker that does not answer or has started again; '' if none."""
        for task, worker in enumerate(self.workers):
            try:
                now = ask(worker.address, task)
            except OSError as error:
                return f'worker {task}, {worker.address}, does not answer ({error})'
            if now.incarnation != worker.incarnation:
                if taker := self._taker(worker):
                    return f'worker {task}, {worker.address}, was taken by {taker}'
                return f'worker {task}, {worker.address}, has started again and lost its weights'
        return ''

    def _taker(self, worker: Worker) -> str:
        """Returns the name of another controller that the worker serves; '' if there is none."""
        name = served_by(worker.address)
        return name if name != self._name else ''

    def lost(self, error: tf.errors.OpError) -> LostWorkerError | None:
        """Returns the error to raise if TensorFlow's error means a lost worker, or else None."""
        silent = self.silent()
        if silent:
            return LostWorkerError(silent)
        if isinstance(error, _LOST) or _BROKEN.search(error.message):
            return LostWorkerError('the connection to a worker broke '
                                   f'({type(error).__name__}: {_first_line(error)})')
        return None


def _check_own_address(address: str) -> None:
    """Raises OSError if this process cannot listen at 'host:port'."""
    try:
        ports.check_free(*ports.split_address(address))
    except OSError as error:
        raise OSError(f'the trainer cannot listen at {address}: {error.strerror or error}; choose '
                      'another --address.') from error


def _connect(addresses: Sequence[str], own_address: str, limit_s: float) -> None:
    """Makes this process's TensorFlow a task of a cluster.

    Connecting has no time limit of its own, so a thread does it.
    """
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

    host, port = ports.split_address(own_address)
    guard = Guard(port, host)
    thread = threading.Thread(target=connect, name='connect', daemon=True)
    thread.start()
    thread.join(limit_s)

    if not outcome:
        raise LostWorkerError(
            f'a worker was lost while connecting (it took longer than {limit_s:.0f} s)')
    error = outcome[0]
    if isinstance(error, tf.errors.OpError):
        raise LostWorkerError(
            f'a worker was lost while connecting ({_first_line(error)})') from error
    if error:
        raise error
    guard.check()


def served_by(address: str) -> str:
    """Returns the name of the controller that a worker serves.

    It is '' if the worker has served none since it started, or does not answer.
    """
    def read() -> tf.Tensor:
        return tf.raw_ops.ReadVariableOp(resource=_name_variable(), dtype=tf.uint8)

    try:
        name = services.run(address, read, _ASK_S)
    except OSError:   # for example, the variable has no value
        return ''
    assert name is not None
    return bytes(name).decode(errors='replace')


def _give_name(address: str, name: str) -> None:
    """Tells a worker which controller it serves from now on."""
    def assign() -> tf.Operation:
        value = tf.constant([*name.encode()], tf.uint8)
        return tf.raw_ops.AssignVariableOp(resource=_name_variable(), value=value)

    with contextlib.suppress(OSError):   # the next step notices a worker that is lost already
        services.run(address, assign, _ASK_S)


def _name_variable() -> tf.Tensor:
    """Returns the worker's variable for the name of its controller.

    It holds bytes of UTF-8, since services.run can fetch numbers but no strings.
    """
    return tf.raw_ops.VarHandleOp(dtype=tf.uint8, shape=None, shared_name='lingpipe/served_by')


def _end_server(worker: Worker) -> None:
    """Ends the process of the worker's server; the process above it starts another."""
    def abort() -> tf.Operation:
        return tf.raw_ops.Abort(error_msg='a controller has come', exit_without_error=True)

    with contextlib.suppress(OSError):   # the server ends before it answers
        services.run(worker.address, abort, _ASK_S)


def _first_line(error: tf.errors.OpError) -> str:
    return str(error.message).strip().split('\n')[0][:200]
