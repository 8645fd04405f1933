"""Services: calls of a TensorFlow server's own gRPC services, each with a time limit.

The obvious way is tf.compat.v1.Session('grpc://...'), which makes the same calls. It was tried, and
fails for three reasons:

- A server that is not there looks like one that hangs, until the whole time limit is over.
- Meanwhile list_devices holds Python's interpreter lock, so that no other thread runs.
- A call that ends the server, as Abort does, is repeated a second later.

So grpcio makes the calls here. The classes of their messages (core/protobuf/worker.proto and
master.proto) are not in TensorFlow's package. protobuf's runtime makes them from the description
below, which leaves out the fields that are not used.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import Message
from tensorflow.core.framework import device_attributes_pb2, graph_pb2
from tensorflow.core.protobuf import named_tensor_pb2

from lingpipe.process import environment

_MESSAGES = '''
    name: "lingpipe/services.proto"  package: "lingpipe"  syntax: "proto3"
    message_type { name: "GetStatusRequest" }
    message_type { name: "GetStatusResponse"
      field { number: 1 name: "device_attributes" type_name: ".tensorflow.DeviceAttributes"
              type: TYPE_MESSAGE label: LABEL_REPEATED } }
    message_type { name: "CreateSessionRequest"
      field { number: 1 name: "graph_def" type_name: ".tensorflow.GraphDef" type: TYPE_MESSAGE } }
    message_type { name: "CreateSessionResponse"
      field { number: 1 name: "session_handle" type: TYPE_STRING } }
    message_type { name: "RunStepRequest"
      field { number: 1 name: "session_handle" type: TYPE_STRING }
      field { number: 3 name: "fetch" type: TYPE_STRING label: LABEL_REPEATED }
      field { number: 4 name: "target" type: TYPE_STRING label: LABEL_REPEATED } }
    message_type { name: "RunStepResponse"
      field { number: 1 name: "tensor" type_name: ".tensorflow.NamedTensorProto"
              type: TYPE_MESSAGE label: LABEL_REPEATED } }
    message_type { name: "CloseSessionRequest"
      field { number: 1 name: "session_handle" type: TYPE_STRING } }
    message_type { name: "CloseSessionResponse" }
'''
_IMPORTED = (device_attributes_pb2, graph_pb2, named_tensor_pb2)


def _message_classes() -> dict[str, type[Message]]:
    """Returns the classes of the messages above, by name."""
    file = text_format.Parse(_MESSAGES, descriptor_pb2.FileDescriptorProto())
    file.dependency.extend(module.DESCRIPTOR.name for module in _IMPORTED)
    pool = descriptor_pool.Default()   # where TensorFlow's messages are
    pool.AddSerializedFile(file.SerializeToString())
    return {message.name: message_factory.GetMessageClass(
                pool.FindMessageTypeByName(f'{file.package}.{message.name}'))
            for message in file.message_type}


_CLASSES = _message_classes()


def devices(address: str, timeout_s: float) -> list[device_attributes_pb2.DeviceAttributes]:
    """Returns the devices of the server at 'host:port'.

    Raises:
      OSError: the server does not answer in time; the message is a few words.
    """
    with _calls(address, timeout_s) as call:
        return list(call('WorkerService/GetStatus').device_attributes)


def run(address: str, make_op: Callable[[], tf.Tensor | tf.Operation], timeout_s: float
        ) -> np.ndarray | None:
    """Runs an op on the first CPU of the server at 'host:port', in a session of its own.

    Args:
      address: of the server.
      make_op: makes the op, in a graph. Its value, if it has one, must be numbers:
        tf.make_ndarray cannot read strings as a server sends them.
      timeout_s: time limit of each of three calls.

    Returns:
      The value of the op; None if it has none.

    Raises:
      OSError: the server does not answer in time, or the op fails; the message is a few words.
    """
    graph = tf.Graph()
    with graph.as_default(), tf.device('/job:worker/task:0/device:CPU:0'):
        op = make_op()
    request = {'fetch': [op.name]} if isinstance(op, tf.Tensor) else {'target': [op.name]}

    with _calls(address, timeout_s) as call:
        session = call('MasterService/CreateSession', graph_def=graph.as_graph_def())
        handle = {'session_handle': session.session_handle}
        result = call('MasterService/RunStep', **handle, **request)
        call('MasterService/CloseSession', **handle)
    return tf.make_ndarray(result.tensor[0].tensor) if result.tensor else None


@contextlib.contextmanager
def _calls(address: str, timeout_s: float) -> Iterator[Callable[..., Any]]:
    """Yields a function that calls a method of a server with the fields of its request.

    It returns the message that the server answers, or raises OSError as `run` does. All calls have
    one connection, since a server keeps each new one waiting for 0.2 s (user_filter.py).
    """
    environment.set_grpc()
    import grpc  # here, since the process that forks servers must not import it (server.py)

    def call(method: str, **fields: Any) -> Any:
        """Calls a method, as 'MasterService/RunStep', and returns what the server answers."""
        name = method.partition('/')[2]
        request = _CLASSES[f'{name}Request'](**fields)
        stub = channel.unary_unary(f'/tensorflow.{method}', type(request).SerializeToString,
                                   _CLASSES[f'{name}Response'].FromString)
        try:
            return stub(request, timeout=timeout_s)
        except grpc.RpcError as error:
            raise OSError(_why(error.code().name, error.details())) from error

    options = [('grpc.use_local_subchannel_pool', 1)]   # remembers no failures of past calls
    with grpc.insecure_channel(address, options) as channel:
        yield call


def _why(code: str, details: str) -> str:
    """A few words on why a call failed, from the name of gRPC's status and what it says."""
    if code == 'DEADLINE_EXCEEDED':
        return 'no answer'
    if code == 'UNIMPLEMENTED' or 'Failed parsing HTTP/2' in details:
        return 'something that is no worker answers there'
    if code != 'UNAVAILABLE':
        return f'{code}: {details}'
    is_unknown = any(word in details for word in ('resolving', 'resolution', 'lookup'))
    if is_unknown:
        return 'the host cannot be looked up as an IPv4 address'
    is_closed = any(word in details for word in ('Socket closed', 'Connection reset'))
    return ('the connection is closed, as by a worker of another user of that machine, or by links '
            'that do not reach it' if is_closed else 'no connection')
