"""Workers: what a controller asks and tells one worker, before and beside their connection."""
from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Sequence

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


def wait_for(addresses: Sequence[str], wait_s: float) -> list[Worker]:
    """Asks all workers until each has answered, and returns them in the order of their tasks.

    They are asked at the same time, since a worker keeps whoever comes waiting for 0.2 s.

    Raises:
      OSError: one does not answer within wait_s.
      ValueError: an address is named twice.
    """
    for address in addresses:
        if addresses.count(address) > 1:
            raise ValueError(f'--devices names the worker {address} twice; name each once, as '
                             f'2*{address} if it is to have two cells a device.')
    deadline_s = time.monotonic() + wait_s
    return at_once(wait_for_worker, [(address, task, deadline_s, wait_s)
                                     for task, address in enumerate(addresses)])


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
      OSError: it does not answer in time.
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
            raise OSError(f'worker {task}, {address}, does not answer within {wait_s:g} s ({why}); '
                          f'start it there with --mode=worker --address={address}, or correct '
                          '--devices.')
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

    try:
        name = services.run(address, read, ASK_S)
    except OSError:   # for example, the variable has no value
        return ''
    assert name is not None
    return bytes(name).decode(errors='replace')


def give_name(address: str, name: str) -> None:
    """Tells a worker which controller it serves from now on."""
    def assign() -> tf.Operation:
        value = tf.constant([*name.encode()], tf.uint8)
        return tf.raw_ops.AssignVariableOp(resource=_name_variable(), value=value)

    with contextlib.suppress(OSError):   # the next step notices a worker that is lost already
        services.run(address, assign, ASK_S)


def _name_variable() -> tf.Tensor:
    """Returns the worker's variable for the name of its controller.

    It holds bytes of UTF-8, since services.run can fetch numbers but no strings.
    """
    return tf.raw_ops.VarHandleOp(dtype=tf.uint8, shape=None, shared_name='lingpipe/served_by')


def end_server(worker: Worker) -> None:
    """Ends the process of the worker's server; the process above it starts another."""
    def abort() -> tf.Operation:
        return tf.raw_ops.Abort(error_msg='a controller has come', exit_without_error=True)

    with contextlib.suppress(OSError):   # the server ends before it answers
        services.run(worker.address, abort, ASK_S)
