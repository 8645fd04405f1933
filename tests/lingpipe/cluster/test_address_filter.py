"""Ports: a server can be reached only at the addresses it was given, from start to end."""
from __future__ import annotations

import os
import socket
import sys
import time

import pytest

from lingpipe.cluster import address_filter, ports, server
from tests.support.flood import Flood
from tests.support.local_workers import Fork, environment, wait_until

pytestmark = pytest.mark.skipif(sys.platform != 'linux', reason='programs of sockets of Linux')
NUM_RESTARTS = 20


@pytest.mark.parametrize(('hosts', 'reached'),
                         [(['127.0.0.1'], ['127.0.0.1']),
                          (['127.0.0.2'], ['127.0.0.2']),
                          (['127.0.0.1', '127.0.0.3'], ['127.0.0.1', '127.0.0.3']),
                          (['0.0.0.0'], ['127.0.0.1', '127.0.0.2', '127.0.0.3', '::1'])])
@pytest.mark.parametrize('hops', [64, 255])
def test_port_is_reached_at_its_addresses_only(monkeypatch, hosts, reached, hops):
    monkeypatch.setattr(socket, 'getaddrinfo',
                        lambda *_: [(socket.AF_INET, 0, 0, '', (host, 0)) for host in hosts])
    monkeypatch.setenv('TF_GRPC_REUSE_PORT', '')
    port = ports.free_port()
    guard = address_filter.Guard(port, 'name')

    addresses = ({address: socket.AF_INET for address in ('127.0.0.1', '127.0.0.2', '127.0.0.3')}
                 | {'::1': socket.AF_INET6})

    with socket.create_server(('', port), family=socket.AF_INET6, dualstack_ipv6=True,
                              reuse_port=True):
        guard.check()
        found = []
        for address, family in addresses.items():
            with socket.socket(family) as one:
                one.settimeout(0.2)
                if family == socket.AF_INET:
                    one.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, hops)
                else:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, hops)
                if one.connect_ex((address, port)) == 0:
                    found.append(address)

    assert found == reached


def test_port_that_another_process_could_share_is_taken():
    with socket.create_server(('', 0), reuse_port=True) as one, pytest.raises(
            OSError, match='Address already in use'):
        address_filter.Guard(one.getsockname()[1], '127.0.0.1')


def test_worker_on_a_system_without_such_programs_says_so_and_ends(monkeypatch):
    monkeypatch.setattr(sys, 'platform', 'elsewhere')
    with pytest.raises(OSError, match=r'^TensorFlow listens at all addresses, and only Linux can '
                                      r'hold it to one; use 0\.0\.0\.0 behind a firewall\.$'):
        server.serve(f'127.0.0.1:{ports.free_port()}', server.session_config('cpu:1'), 60.)


def serve_a_moment(address: str, path: str, is_killed: bool) -> None:
    """Runs a server until somebody has reached it, which the test reports in a file."""
    host, port = ports.split_address(address)
    server.start(host, port, server.session_config('cpu:1'))
    os.rename(f'{path}.new', path)
    wait_until(lambda: not os.path.exists(path))
    if is_killed:
        os.kill(os.getpid(), 9)
    os._exit(0)


@pytest.mark.slow
def test_no_connection_to_another_address_comes_through_while_servers_start_and_end(tmp_path):
    """Connections came through for 6 to 115 ms of every start.

    TensorFlow's server listened before its socket was given a filter.
    """
    port, path = ports.free_port(), tmp_path / 'is up'
    with Flood('127.0.0.1', port) as right, Flood('127.0.0.2', port) as other, Flood(
            '::1', port) as version_6:
        for number in range(NUM_RESTARTS):
            (tmp_path / 'is up.new').touch()
            process = Fork(serve_a_moment, f'127.0.0.1:{port}', str(path), number % 2 == 1,
                           env=environment())
            wait_until(lambda process=process: path.exists() or process.poll() is not None)
            reached = right.num_through
            wait_until(lambda reached=reached: right.num_through > reached + 10)
            path.unlink()
            process.communicate(timeout=60)
            time.sleep(0.01)
    assert (other.num_through, version_6.num_through) == (0, 0)
    assert min(other.num_tried, version_6.num_tried) > 50 * NUM_RESTARTS
