"""The calls that ask a worker: what they return, and errors in a few words."""
from __future__ import annotations

import contextlib
import http.server
import io
import socket
import threading

import pytest
import tensorflow as tf

from lingpipe.cluster import ports, services
from tests.support import local_workers


@pytest.fixture(scope='module')
def address():
    """The address of a worker with two CPU devices."""
    with local_workers.workers(1, 'cpu:2', hangs_after_s=60.) as (worker,):
        worker.wait()
        yield worker.address


def test_server_tells_its_devices(address):
    devices = services.devices(address, 10.)
    assert [device.name.partition('/device:')[2] for device in devices] == ['CPU:0', 'CPU:1']
    assert len({device.incarnation for device in devices}) == 2


@pytest.mark.parametrize('value', [[1, 2, 300], [0.5], []])
def test_value_of_an_op_comes_back(address, value):
    assert services.run(address, lambda: tf.constant(value), 10.).tolist() == value


def test_op_without_a_value_gives_none(address):
    assert services.run(address, tf.no_op, 10.) is None


def test_op_that_fails_is_a_few_words(address):
    def read():
        variable = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name='not there')
        return tf.raw_ops.ReadVariableOp(resource=variable, dtype=tf.float32)

    with pytest.raises(OSError, match='^(NOT_FOUND|FAILED_PRECONDITION): '):
        services.run(address, read, 10.)


@pytest.fixture
def web_server():
    """The address of a server that knows nothing of workers."""
    server = http.server.HTTPServer(('127.0.0.1', 0), http.server.BaseHTTPRequestHandler)
    with server, contextlib.redirect_stderr(io.StringIO()):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f'127.0.0.1:{server.server_port}'
        server.shutdown()


@pytest.fixture
def closing_server():
    """The address of a server that accepts connections and closes them."""
    with socket.create_server(('127.0.0.1', 0)) as listener:
        def close_all():
            with contextlib.suppress(OSError):
                while True:
                    listener.accept()[0].close()
        threading.Thread(target=close_all, daemon=True).start()
        yield f'127.0.0.1:{listener.getsockname()[1]}'
        listener.shutdown(socket.SHUT_RDWR)


def test_why_there_is_no_worker_is_told(web_server, closing_server):
    for address, words in ((web_server, 'something that is no worker answers there'),
                           (f'127.0.0.1:{ports.free_port()}', 'no connection'),
                           (closing_server, 'the connection is closed, as by a worker of another '
                                            'user of that machine, or by links that do not reach '
                                            'it'),
                           ('none.invalid:2222',
                            'the host cannot be looked up as an IPv4 address')):
        with pytest.raises(OSError, match=f'^{words}$'):
            services.devices(address, 10.)
