"""Client: the controller's side: waiting for them, connecting, and telling a lost worker from another error.

A worker is asked what it has, and told to begin anew, by a few calls of TensorFlow's own services (core/protobuf/worker.proto and
master.proto), made with grpcio since they must have a time limit, which connecting has not. Their messages are so small that they are
written and read here field by field: the classes are not in TensorFlow's package.

A worker keeps the weights of a controller that was killed, for want of a way to know. So a controller first makes each worker begin anew:
an Abort op ends the process of its server, and the process above it (server.py) starts another. A worker thus serves the controller that
came last. It also keeps that one's name, in a variable which every controller can read: one that has lost a worker thus learns who has it.
"""
from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import device_attributes_pb2, tensor_pb2

from lingpipe.cluster import address_filter, ports
from lingpipe.process import closed_pipe
from lingpipe.process.process_name import this_process

_ASK_S = 5.0           # for an answer of one that is there
_BETWEEN_S = 0.2       # two attempts
_TELL_AFTER_S = 3.0    # of waiting
# What other errors say that follow from a connection that broke, as those of a value that was to be read over it.
_BROKEN = re.compile('poisoned|RecvFromRemote|Socket closed')
_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.DeadlineExceededError)


class LostWorkerError(OSError):
    """A worker, or the connection to it, is gone; the training can go on from its last checkpoint."""


@dataclasses.dataclass(frozen=True)
class Worker:
    """What a worker answered.

    Attributes:
      address: 'host:port'.
      devices: full names of its GPUs or TPU cores, or else of its CPU devices.
      others: the rest of them.
      incarnation: another number after each start.
    """
    address: str
    devices: tuple[str, ...]
    others: tuple[str, ...]
    incarnation: int


def wait_for(addresses: Sequence[str], wait_s: float) -> list[Worker]:
    """Asks all workers, in the order of their tasks, until each has answered.

    Raises:
      OSError: one does not answer within wait_s.
      ValueError: an address is named twice.
    """
    for address in addresses:
        if addresses.count(address) > 1:
            raise ValueError(f'--devices names the worker {address} twice; name each once, as 2*{address} if it is to have two cells a '
                             f'device.')
    deadline_s = time.monotonic() + wait_s
    return [_wait(address, task, deadline_s, wait_s) for task, address in enumerate(addresses)]


def _wait(address: str, task: int, deadline_s: float, wait_s: float, but_not: int | None = None) -> Worker:
    """The worker, once it answers and is not the incarnation `but_not`."""
    why, is_told = '', False
    while True:
        left_s = deadline_s - time.monotonic()
        try:
            worker = ask(address, task, max(0.1, min(_ASK_S, left_s)))
            if worker.incarnation != but_not:
                return worker
            why = 'it was told to begin anew and did not'
        except OSError as error:
            why = str(error)
        if left_s < wait_s - _TELL_AFTER_S and not is_told:
            is_told = True
            closed_pipe.say(f'waiting up to {wait_s:g} s for worker {task}, {address} ({why})', sys.stderr)
        if left_s <= 0:
            raise OSError(f'worker {task}, {address}, does not answer within {wait_s:g} s ({why}); start it there with --mode=worker '
                          f'--address={address}, or correct --devices.')
        time.sleep(min(_BETWEEN_S, max(0., left_s)))


def ask(address: str, task: int = 0, timeout_s: float = _ASK_S) -> Worker:
    """The state of one worker, now.

    Raises:
      OSError: it does not answer in time, in a few words.
    """
    answer = _call(address, 'WorkerService/GetStatus', b'', timeout_s)
    attributes = [device_attributes_pb2.DeviceAttributes.FromString(data) for number, data in _fields(answer) if number == 1]
    by_kind: dict[str, list[str]] = {}
    for one in attributes:
        name = f'/job:worker/replica:0/task:{task}{one.name[one.name.index("/device:"):]}'   # as the controller will call it
        by_kind.setdefault(one.device_type, []).append(name)
    chosen = by_kind.get('TPU') or by_kind.get('GPU') or by_kind.get('CPU', [])
    others = [name for names in by_kind.values() for name in names if name not in chosen]
    return Worker(address, tuple(chosen), tuple(others), attributes[0].incarnation if attributes else 0)


def wait_for_ops(values: Iterable[tf.Tensor]) -> None:
    """Waits until workers have run the ops that made these values, and all that were called before them.

    A worker runs single ops in the order of the calls, but nobody waits for them here, and the next step, which is sent another way, can
    overtake them.
    """
    last = {process_of(value): value for value in values}
    for value in last.values():
        value.get_shape()   # which is known when the op has run


def process_of(value: tf.Tensor) -> str:
    """The process, as '/job:worker/replica:0/task:1', that has a value in its memory."""
    return value.device.partition('/device:')[0]   # type: ignore[no-any-return]


class Connection:
    """The connection of this process to its workers; a process can have one in its life, since TensorFlow cannot undo it.

    Attributes:
      workers: as they were when it was made, by task.
    """

    def __init__(self, addresses: Sequence[str], own_address: str = '', wait_s: float = 60., name: str = '', is_again: bool = False):
        """
        Args:
          addresses: 'host:port' of the workers.
          own_address: 'host:port' at which the workers reach this process; default: found out.
          wait_s: for all of it.
          name: of this process, for others that ask a worker whom it serves.
          is_again: whether this process has had the workers before; one that serves another by now is left to it.

        Raises:
          OSError: a worker does not answer in time, or serves another, or own_address cannot be listened at.
          LostWorkerError: one was there and is gone.
        """
        self._name = name or this_process()
        if own_address:
            _check_own_address(own_address)   # or workers would leave whom they serve for a trainer that cannot begin
        deadline_s = time.monotonic() + wait_s
        before = wait_for(addresses, wait_s)
        for task, worker in enumerate(before):
            if is_again and (taker := self._taker(worker)):
                raise OSError(f'worker {task}, {worker.address}, was taken by {taker}; wait for the end of that one or stop it, or name '
                              f'other workers in --devices: the same command goes on from the last checkpoint.')
        for worker in before:
            _begin_anew(worker)
        self.workers = []
        for task, worker in enumerate(before):
            self.workers.append(_wait(worker.address, task, deadline_s, wait_s, worker.incarnation))
            _give_name(worker.address, self._name)
        own_address = own_address or ports.own_address(list(addresses))
        _connect(addresses, own_address, max(_ASK_S, deadline_s - time.monotonic()))

    def silent(self) -> str:
        """A few words on the first worker that does not answer or has begun anew since; '' if all are well."""
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
        """The name of the controller that the worker serves; '' if that is this one, or none."""
        name = served_by(worker.address)
        return name if name != self._name else ''

    def lost(self, error: tf.errors.OpError) -> LostWorkerError | None:
        """What an error of TensorFlow means, if it is that a worker is lost and not that something is wrong with the program."""
        silent = self.silent()
        if silent:
            return LostWorkerError(silent)
        if isinstance(error, _LOST) or _BROKEN.search(error.message):
            return LostWorkerError(f'the connection to a worker broke ({type(error).__name__}: {_first_line(error)})')
        return None


def _check_own_address(address: str) -> None:
    """Raises OSError if this process cannot listen at 'host:port'."""
    try:
        ports.check_free(*ports.split_address(address))
    except OSError as error:
        raise OSError(f'the trainer cannot listen at {address}: {error.strerror or error}; choose another --address.') from error


def _connect(addresses: Sequence[str], own_address: str, limit_s: float) -> None:
    """Makes this process's TensorFlow a task of a cluster: in a thread, as it has no time limit."""
    spec = tf.train.ClusterSpec({'worker': list(addresses), 'localhost': [own_address]})   # or TensorFlow would say localhost to all
    ended: list[Exception | None] = []

    def connect() -> None:
        try:
            tf.config.experimental_connect_to_cluster(spec, job_name='localhost')
            tf.config.list_logical_devices()   # connects
            ended.append(None)
        except Exception as error:
            ended.append(error)

    host, port = ports.split_address(own_address)
    guard = address_filter.Guard(port, host)
    thread = threading.Thread(target=connect, name='connect', daemon=True)
    thread.start()
    thread.join(limit_s)
    if not ended:
        raise LostWorkerError(f'a worker was lost while connecting (it took longer than {limit_s:.0f} s)')
    if isinstance(ended[0], tf.errors.OpError):
        raise LostWorkerError(f'a worker was lost while connecting ({_first_line(ended[0])})') from ended[0]
    if ended[0]:
        raise ended[0]
    guard.check()


def served_by(address: str) -> str:
    """The name of the controller that a worker serves; '' if it has served none since it began, or does not answer."""
    try:
        answer = _run(address, lambda: tf.raw_ops.ReadVariableOp(resource=_name_variable(), dtype=tf.uint8))
    except OSError:   # as of a variable without a value
        return ''
    (_, value), = (field for field in _fields(dict(_fields(answer))[1]) if field[0] == 2)   # RunStepResponse.tensor, its tensor
    return bytes(tf.make_ndarray(tensor_pb2.TensorProto.FromString(value))).decode(errors='replace')


def _give_name(address: str, name: str) -> None:
    """Tells a worker whom it serves from now on."""
    with contextlib.suppress(OSError):   # one that is lost already is found when it is needed
        _run(address, lambda: tf.raw_ops.AssignVariableOp(resource=_name_variable(), value=tf.constant([*name.encode()], tf.uint8)))


def _name_variable() -> tf.Tensor:
    """The worker's variable for a controller's name, as bytes of UTF-8: TensorFlow packs numbers in one way, strings in two."""
    return tf.raw_ops.VarHandleOp(dtype=tf.uint8, shape=None, shared_name='lingpipe/served_by')


def _begin_anew(worker: Worker) -> None:
    """Ends the process of the worker's server; the process above it makes another."""
    with contextlib.suppress(OSError):   # there is nobody to answer any more
        _run(worker.address, lambda: tf.raw_ops.Abort(error_msg='a controller has come', exit_without_error=True))


def _run(address: str, make_op: Callable[[], Any]) -> bytes:
    """Runs an op on a worker's CPU in a session of its own; returns the RunStepResponse, with the value if the op has one."""
    graph = tf.Graph()
    with graph.as_default(), tf.device('/job:worker/task:0/device:CPU:0'):
        made = make_op()
    named = _field(3, made.name.encode()) if isinstance(made, tf.Tensor) else _field(4, made.name.encode())   # fetch, or target
    create = _field(1, graph.as_graph_def().SerializeToString())            # CreateSessionRequest.graph_def
    handle = dict(_fields(_call(address, 'MasterService/CreateSession', create, _ASK_S)))[1]
    answer = _call(address, 'MasterService/RunStep', _field(1, handle) + named, _ASK_S)   # session_handle
    _call(address, 'MasterService/CloseSession', _field(1, handle), _ASK_S)
    return answer


# gRPC and protocol buffers.

def _call(address: str, method: str, request: bytes, timeout_s: float) -> bytes:
    import grpc  # here, as only trainings with workers need it; the processes of server.py that fork never do

    options = [('grpc.enable_http_proxy', 0), ('grpc.use_local_subchannel_pool', 1)]   # as TensorFlow; and no memory of past failures
    with grpc.insecure_channel(address, options) as channel:
        try:
            return channel.unary_unary(f'/tensorflow.{method}')(request, timeout=timeout_s)   # type: ignore[no-any-return]
        except grpc.RpcError as error:
            raise OSError({grpc.StatusCode.DEADLINE_EXCEEDED: 'no answer', grpc.StatusCode.UNAVAILABLE: 'no connection'}.get(
                error.code(), f'{error.code().name}: {error.details()}')) from error


def _varint(number: int) -> bytes:
    made = []
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def _field(number: int, data: bytes) -> bytes:
    """A field of bytes, text or a message."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _fields(message: bytes) -> Iterable[tuple[int, bytes]]:
    """The fields of bytes, texts and messages, with their numbers; numbers are passed over."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
            if byte < 128:
                return value

    while at < len(message):
        tag = varint()
        length = {0: 0, 1: 8, 5: 4}[tag & 7] if tag & 7 != 2 else varint()
        if tag & 7 == 0:
            varint()
        elif tag & 7 == 2:
            yield tag >> 3, message[at:at + length]
        at += length


def _first_line(error: tf.errors.OpError) -> str:
    return str(error.message).strip().split('\n')[0][:200]
