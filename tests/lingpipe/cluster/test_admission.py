"""Admission: without filters of connections, another user of this machine gets none."""
from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from lingpipe.cluster import address_filter, ports, user_filter
from lingpipe.tools.faults.network import Network, missing
from tests.support import links
from tests.support.forks import Fork
from tests.support.local_workers import wait_until

pytestmark = pytest.mark.skipif(sys.platform != 'linux', reason='programs of sockets of Linux')
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason='only root can become another user')
NOBODY = 65534
PORT = 2222   # of a machine of its own
CONNECTS = 'exec 3<>/dev/tcp/127.0.0.1/{}'   # waits for an answer, and then ends
SENDS = CONNECTS + '; echo hello >&3; cat <&3'


def refuse(*_: object) -> None:
    """Does what newer kernels do when a process without CAP_NET_ADMIN attaches a filter."""
    raise PermissionError(1, 'Operation not permitted')


def listener(port: int) -> socket.socket:
    """A socket that listens as TensorFlow's does."""
    sock = socket.create_server(('', port), family=socket.AF_INET6, dualstack_ipv6=True,
                                reuse_port=True)
    sock.settimeout(60.)
    return sock


@pytest.fixture
def server(monkeypatch):
    """A socket that listens in the group of a guard that may attach no filter."""
    monkeypatch.setenv('TF_GRPC_REUSE_PORT', '')
    monkeypatch.setenv(user_filter.LET_IN, '')
    monkeypatch.setattr(user_filter, 'hold', refuse)
    port = ports.free_port()
    guard = address_filter.Guard(port, '127.0.0.1')
    with listener(port) as sock:
        guard.check()
        yield sock


def client(port: int, program: str, user: int) -> subprocess.Popen[bytes]:
    """Runs a program of bash as a user."""
    return subprocess.Popen(['/bin/bash', '-c', program.format(port)], user=user, cwd='/')


def test_this_user_is_let_in_when_tcp_asks_again(server):
    with client(server.getsockname()[1], SENDS, os.geteuid()) as one:
        with server.accept()[0] as sock:
            sock.settimeout(60.)
            assert sock.recv(100) == b'hello\n'
        one.wait(60)


@needs_root
def test_another_user_is_named_and_gets_no_connection(server, capfd):
    port = server.getsockname()[1]
    with client(port, CONNECTS, NOBODY) as stranger:
        wait_until(lambda: user_filter.users_who_ask(port, ['127.0.0.1']))
        with client(port, SENDS, os.geteuid()) as one:
            with server.accept()[0] as sock:
                sock.settimeout(60.)
                assert sock.recv(100) == b'hello\n'
            one.wait(60)
        assert stranger.poll() is None   # It still asks.
        stranger.kill()
    # The line was printed before the other one was let in.
    assert capfd.readouterr().err == (
        f'port {port}: user nobody of this machine asks for a connection; only root and the user '
        'of this process are let in\n')


@needs_root
def test_another_user_who_comes_through_all_the_same_is_shut_out(capfd):
    with listener(0) as server:
        user_filter.start(server.getsockname()[1], are_held=False)
        with client(server.getsockname()[1], CONNECTS + '; cat <&3', NOBODY) as stranger:
            with server.accept()[0] as sock:
                sock.settimeout(60.)
                assert sock.recv(100) == b''
            stranger.wait(60)
    assert 'shut down a connection of user nobody' in capfd.readouterr().err


def answer_question(namespace: str, host: str) -> None:
    """Answers a question at PORT of a machine, with a guard that may attach no filter."""
    links.enter(namespace)
    user_filter.hold = refuse
    os.environ[user_filter.LET_IN] = ''
    os.environ['TF_GRPC_REUSE_PORT'] = ''
    guard = address_filter.Guard(PORT, host)
    with listener(PORT) as server:
        guard.check()
        with server.accept()[0] as sock:
            sock.recv(100)
            sock.sendall(links.ANSWER)


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_every_user_of_another_machine_is_let_in():
    network = Network(2, seed=0)
    host = network.host(0)
    server = Fork(answer_question, links.namespace_of(network.prefix(0)), host)
    try:
        wait_until(lambda: links.reply(network.prefix(1), links.ASKS, f'{host}/{PORT}', NOBODY)
                   == links.ANSWER)
    finally:
        server.terminate()
        server.communicate()
        network.close()
