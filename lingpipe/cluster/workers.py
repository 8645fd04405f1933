"""Workers: what a controller asks and tells one worker, before and beside their connection."""
from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.cluster import services
from lingpipe.cluster.at_once import at_once
from lingpipe.process import closed_pipe

ASK_S = 5.0            # time limit for one answer of a worker
_BETWEEN_S = 0.2       # time between two attempts
_TELL_AFTER_S = 3.0    # after waiting so long, a line says what for


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


class SilentWorkerError(OSError):
    """A worker does not answer in time.

    Attributes:
      finding: what was found, without the remedy.
    """

    def __init__(self, address: str, task: int, wait_s: float, why: str):
        self.finding = f'worker {task}, {address}, does not answer within {wait_s:g} s ({why})'
        super().__init__(f'{self.finding}; start it there with --mode=worker --address={address}, '
                         'or correct --devices.')


def wait_for(addresses: Sequence[str], wait_s: float) -> list[Worker]:
    """Asks all workers until each has answered, and returns them in the order of their tasks.

    They are asked at the same time, since a worker lets each new connection wait for 0.2 s.

    Raises:
      SilentWorkerError: one does not answer within wait_s.
      ValueError: a worker is named twice, perhaps by different names of its host.
    """
    for address in addresses:
        if addresses.count(address) > 1:
            raise _named_twice(address)
    deadline_s = time.monotonic() + wait_s
    workers = at_once(wait_for_worker, [(address, task, deadline_s, wait_s)
                                        for task, address in enumerate(addresses)])

    first_by_incarnation: dict[int, Worker] = {}
    for worker in workers:
        first = first_by_incarnation.setdefault(worker.incarnation, worker)
        if first is not worker:
            raise _named_twice(first.address, f', by {first.address} and {worker.address}')
    return workers


def _named_twice(address: str, names: str = '') -> ValueError:
    return ValueError(f'--devices names the worker {address} twice{names}; name each once, as '
                      f'2*{address} if it is to have two cells a device.')


def missing(addresses: Sequence[str], wait_s: float) -> dict[str, str]:
    """Asks all workers until each has answered, at most for wait_s.

    They are asked at the same time, so that one that hangs takes no time from the others.

    Returns:
      The address of each worker that has not answered -> a few words why.
    """
    deadline_s = time.monotonic() + wait_s
    whys = at_once(_why_silent, [(address, deadline_s) for address in addresses])
    return {address: why for address, why in zip(addresses, whys, strict=True) if why}


def _why_silent(address: str, deadline_s: float) -> str:
    """Asks a worker until it answers; returns '', or a few words why it has not by the deadline."""
    while True:
        left_s = deadline_s - time.monotonic()
        try:
            ask(address, timeout_s=max(0.1, min(ASK_S, left_s)))
            return ''
        except OSError as error:
            why = str(error)
        if left_s <= 0:
            return why
        time.sleep(min(_BETWEEN_S, left_s))


def wait_for_worker(address: str, task: int, deadline_s: float, wait_s: float,
                    but_not: int | None = None) -> Worker:
    """Returns the worker once it answers and is not the incarnation `but_not`.

    Args:
      address: 'host:port'.
      task: the number of the worker.
      deadline_s: when to give up, by time.monotonic().
      wait_s: how long that is in all, for messages.
      but_not: a worker that was told to start again.

    Raises:
      SilentWorkerError: it does not answer in time.
    """
    why = ''
    has_told = False
    if but_not is not None:
        # TCP tries only a second later to reach a server that has not quite started.
        time.sleep(_BETWEEN_S)
    while True:
        left_s = deadline_s - time.monotonic()
        try:
            worker = ask(address, task, max(0.1, min(ASK_S, left_s)))
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
            raise SilentWorkerError(address, task, wait_s, why)
        time.sleep(min(_BETWEEN_S, max(0., left_s)))


def ask(address: str, task: int = 0, timeout_s: float = ASK_S) -> Worker:
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


def served_by(address: str) -> str:
    """Returns the name of the controller that a worker serves.

    It is '' if the worker has served none since it started, or does not answer.
    """
    def read() -> tf.Tensor:
        return tf.raw_ops.ReadVariableOp(resource=_name_variable(), dtype=tf.uint8)

    return _name_from(address, read)   # fails if the variable has no value


def claim(address: str, name: str, ends_server: bool = False) -> str:
    """Tells a worker which controller it serves from now on, unless it serves one already.

    Args:
      address: 'host:port' of the worker.
      name: of the controller.
      ends_server: whether to end the server too, if it serves that controller now.

    Returns:
      The name of the controller that the worker serves; '' if it does not answer, as a server that
      has ended.
    """
    def make_op() -> tf.Tensor:
        """Runs `_claimed` on the worker, one call at a time."""
        # Otherwise two controllers that claim it at the same time could both find it free.
        lock = tf.raw_ops.MutexLock(mutex=tf.raw_ops.MutexV2(shared_name='lingpipe/claim'))
        with tf.control_dependencies([lock]):
            served = _claimed(tf.constant([*name.encode()], tf.uint8), ends_server)
        with tf.control_dependencies([served]):
            unlocked = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
        with tf.control_dependencies([unlocked]):
            return tf.identity(served)

    return _name_from(address, make_op)


def _claimed(own: tf.Tensor, ends_server: bool) -> tf.Tensor:
    """What `claim` runs on the worker; returns the name of the controller that it serves now."""
    variable = _name_variable()
    served = _either(
        tf.raw_ops.VarIsInitializedOp(resource=variable), own,
        lambda: tf.raw_ops.ReadVariableOp(resource=variable, dtype=tf.uint8),
        lambda: tf.raw_ops.AssignVariableOp(resource=variable, value=own))
    if not ends_server:
        return served
    is_own = tf.raw_ops.Equal(x=served, y=own, incompatible_shape_error=False)
    return _either(tf.reduce_all(is_own), served, _abort, tf.no_op)


def let_go(address: str, name: str) -> None:
    """Tells a worker that the controller of this name needs it no longer, if it serves that one."""
    def make_op() -> tf.Tensor:
        """Removes the name on the worker; fails if there is none."""
        variable = _name_variable()
        served = tf.raw_ops.ReadVariableOp(resource=variable, dtype=tf.uint8)
        is_own = tf.raw_ops.Equal(x=served, y=tf.constant([*name.encode()], tf.uint8),
                                  incompatible_shape_error=False)
        return _either(tf.reduce_all(is_own), served,
                       lambda: tf.raw_ops.DestroyResourceOp(resource=variable), tf.no_op)

    with contextlib.suppress(OSError):
        services.run(address, make_op, ASK_S)


def serves(address: str) -> bool:
    """Whether a worker serves a controller that has not let go of it.

    Raises:
      OSError: the worker does not answer; the message is a few words.
    """
    is_claimed = services.run(
        address, lambda: tf.raw_ops.VarIsInitializedOp(resource=_name_variable()), ASK_S)
    return bool(is_claimed)


def _either(condition: tf.Tensor, value: tf.Tensor, if_true: Callable[[], Any],
            if_false: Callable[[], Any]) -> tf.Tensor:
    """Runs one of two ops, and returns its value, or `value` if it has none.

    The obvious way is tf.cond, but it makes functions, which TensorFlow also sends to the workers
    that this process is connected to. Switch makes what depends on its other output be skipped.
    """
    branches = []
    for branch, make_op in zip(tf.raw_ops.Switch(data=value, pred=condition),
                               (if_false, if_true), strict=True):
        with tf.control_dependencies([tf.identity(branch)]):
            op = make_op()
        with tf.control_dependencies([op]):
            branches.append(tf.identity(op if isinstance(op, tf.Tensor) else branch))
    return tf.raw_ops.Merge(inputs=branches).output


def _name_variable() -> tf.Tensor:
    """Returns the worker's variable for the name of its controller.

    It holds bytes of UTF-8, since services.run can fetch numbers but no strings.
    """
    return tf.raw_ops.VarHandleOp(dtype=tf.uint8, shape=None, shared_name='lingpipe/served_by')


def _name_from(address: str, make_op: Callable[[], tf.Tensor]) -> str:
    """Returns the name that an op on a worker makes; '' if it fails or nobody answers."""
    try:
        name = services.run(address, make_op, ASK_S)
    except OSError:
        return ''
    assert name is not None
    return bytes(name).decode(errors='replace')


def end_server(address: str) -> None:
    """Ends the process of the worker's server; the process above it starts another."""
    with contextlib.suppress(OSError):   # the server ends before it answers
        services.run(address, _abort, ASK_S)


def _abort() -> tf.Operation:
    return tf.raw_ops.Abort(error_msg='a controller has come', exit_without_error=True)
