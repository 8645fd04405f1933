"""User filter: another user of this machine reaches the port, but nothing is read from it."""
from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys

import pytest

from lingpipe.cluster import address_filter, ports, user_filter
from tests.support.local_workers import wait_until

pytestmark = pytest.mark.skipif(sys.platform != 'linux', reason='filters of sockets of Linux')
may_hold = pytest.mark.skipif(user_filter.lets_all_in(), reason='newer kernels want CAP_NET_ADMIN')
NOBODY = 65534
SENDS = 'exec 3<>/dev/tcp/127.0.0.1/{}; echo hello >&3; cat <&3'   # cat ends with the connection
SENDS_AND_CLOSES = 'echo hello >/dev/tcp/127.0.0.1/{}'


@pytest.fixture
def let_in() -> str:
    """What the environment says of other users."""
    return ''


@pytest.fixture
def server(monkeypatch, let_in):
    """A socket that listens in a guard's group, as TensorFlow's does."""
    monkeypatch.setenv('TF_GRPC_REUSE_PORT', '')
    monkeypatch.setenv('LINGPIPE_LET_IN_USERS', let_in)
    port = ports.free_port()
    guard = address_filter.Guard(port, '127.0.0.1')
    with socket.create_server(('', port), family=socket.AF_INET6, dualstack_ipv6=True,
                              reuse_port=True) as sock:
        sock.settimeout(60.)
        guard.check()
        yield sock


def received(server: socket.socket, program: str, user: int) -> bytes:
    """Runs a program of bash as a user, and returns what the server reads from it."""
    port = server.getsockname()[1]
    with subprocess.Popen(['/bin/bash', '-c', program.format(port)], user=user, cwd='/') as client:
        with server.accept()[0] as sock:
            sock.settimeout(60.)
            try:
                data = sock.recv(100)
            except ConnectionResetError:   # The client sent more before this socket was looked at.
                data = b''
        client.wait(60)
    return data


@may_hold
def test_this_user_is_let_in(server):
    assert received(server, SENDS, os.geteuid()) == b'hello\n'


@may_hold
@pytest.mark.skipif(os.geteuid() != 0, reason='only root can become another user')
@pytest.mark.parametrize('program', [SENDS, SENDS_AND_CLOSES])
def test_another_user_is_shut_out(server, program, capfd):
    assert received(server, program, NOBODY) == b''
    received(server, SENDS, os.geteuid())   # A line was printed before this one was let in.


@may_hold
@pytest.mark.skipif(os.geteuid() != 0, reason='only root can become another user')
def test_user_who_is_shut_out_is_named(server, capfd):
    received(server, SENDS, NOBODY)
    received(server, SENDS, os.geteuid())   # The line was printed before this one was let in.
    assert capfd.readouterr().err == (
        f'port {server.getsockname()[1]}: shut down a connection of user nobody of this machine; '
        'only root and the user of this process are let in\n')


def test_system_that_does_not_tell_owners_says_so(monkeypatch):
    monkeypatch.delenv(user_filter.LET_IN, raising=False)
    monkeypatch.setattr(os, 'geteuid', lambda: NOBODY + 1)
    with pytest.raises(OSError, match=r'^TensorFlow listens at all addresses, and this system '
                                      r'cannot \(/proc/net/tcp does not list the sockets of this '
                                      r'process\) hold it to one; use 0\.0\.0\.0 behind a '
                                      r'firewall\.$'):
        address_filter.check_system('127.0.0.1')


def test_the_table_of_connections_is_read_for_all_that_have_come_and_not_for_each(monkeypatch):
    """Another user made 36,000 in a minute, and a worker was deaf for the hour after it."""
    num_connections, reads = 100, []

    def counting_open(path, *args, **kwargs):
        if path == '/proc/net/tcp':
            reads.append(path)
        return open(path, *args, **kwargs)

    def is_shut_down(connection: socket.socket) -> bool:
        try:
            connection.getpeername()
        except OSError:
            return True
        return False

    monkeypatch.setattr(user_filter, 'open', counting_open, raising=False)
    with socket.create_server(('127.0.0.1', 0)) as sock:
        connections = []
        for _ in range(num_connections):   # Nobody knows whose a connection was that has ended.
            socket.create_connection(sock.getsockname()).close()
            connections.append(sock.accept()[0])
        user_filter.start(sock.getsockname()[1], are_held=False)
        wait_until(lambda: all(map(is_shut_down, connections)))
        for connection in connections:
            connection.close()
    assert len(reads) < num_connections


def test_a_number_that_is_a_file_by_now_leaves_no_descriptor_open(monkeypatch, tmp_path):
    """Each such number cost the worker a descriptor, which it never closed."""
    path, num_copies = tmp_path / 'file', 0
    path.touch()

    def copy_of_a_file(descriptor: int) -> int:
        nonlocal num_copies
        num_copies += 1
        return os.open(path, os.O_RDONLY)

    with socket.create_server(('127.0.0.1', 0)) as sock:
        monkeypatch.setattr(os, 'dup', copy_of_a_file)
        user_filter.start(sock.getsockname()[1], are_held=False)
        wait_until(lambda: num_copies >= 5)
        monkeypatch.undo()
        wait_until(lambda: str(path) not in open_files(), timeout_s=10.)


def open_files() -> list[str]:
    """The paths of the files that this process has open."""
    paths = []
    for number in os.listdir('/proc/self/fd'):
        with contextlib.suppress(FileNotFoundError):   # It has been closed meanwhile.
            paths.append(os.readlink(f'/proc/self/fd/{number}'))
    return paths


def refuse(*_: object) -> None:
    """Does what newer kernels do when a process without CAP_NET_ADMIN attaches a filter."""
    raise PermissionError(1, 'Operation not permitted')


@pytest.mark.skipif(os.geteuid() != 0, reason='only root can become another user')
@pytest.mark.parametrize('let_in', ['all'])
def test_all_users_are_let_in_without_filters_if_the_environment_says_so(monkeypatch, server):
    monkeypatch.setattr(user_filter, 'hold', refuse)
    address_filter.check_system('127.0.0.1')
    assert received(server, SENDS, NOBODY) == b'hello\n'
