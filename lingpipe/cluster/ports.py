"""Ports of this machine: which are free, and how others reach them. An address is 'host:port'."""
from __future__ import annotations

import re
import socket

from lingpipe.process.error_text import reason


def split_address(address: str) -> tuple[str, int]:
    """Splits 'host:2222' into 'host' and 2222.

    Raises:
      ValueError: the host is no name or number, or the port is not between 1 and 65535.
    """
    host, _, port = address.rpartition(':')
    is_host = re.fullmatch(r'[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]', host)
    is_port = re.fullmatch('[0-9]{1,5}', port) and 0 < int(port) < 65536
    if is_host and is_port and host.startswith('['):
        raise ValueError(f'{address!r} is an IPv6 address, and lingpipe connects by IPv4; give a '
                         'host name or an IPv4 address.')
    if not is_host or not is_port:
        raise ValueError(f'{address!r} is no address; write host:port, as 127.0.0.1:2222.')
    return host, int(port)


def free_port() -> int:
    """Returns a port at which nothing listens now, at any address of this machine."""
    with _bound('', 0) as sock:
        return sock.getsockname()[1]   # type: ignore[no-any-return]


def check_free(host: str, port: int) -> None:
    """Checks that a server can listen at host:port, and at all other addresses of this machine too.

    TensorFlow's server does the latter, whatever host it is told.

    Args:
      host: a name or number; '' means all addresses.
      port: no other process may have it, not even one that would share it.

    Raises:
      OSError: the host is not this machine, or the port is taken at some address.
    """
    _bound(host, port).close()
    try:
        _bound('', port).close()
    except OSError as error:
        raise OSError(error.errno, f'{error.strerror} at another address of this machine, and '
                                   'TensorFlow takes the port at all of them') from error


def own_address(peers: list[str]) -> str:
    """Returns an address with a free port at which the machines of `peers` reach this process.

    The host is on loopback if all peers are.

    Raises:
      ValueError: a host is not known, or some are on loopback and others are not.
    """
    return f'{_own_host(peers)}:{free_port()}'


def reached_at(address: str, peers: list[str]) -> str:
    """Returns the address by which the machines of `peers` reach what listens at `address` here.

    It is another one if this process listens at 0.0.0.0, which means all addresses.

    Raises:
      ValueError: a host is not known, or nobody but this machine reaches the address.
    """
    host, port = split_address(address)
    if host == '0.0.0.0':
        return f'{_own_host(peers)}:{port}'
    is_on_loopback = _number(address).startswith('127.')
    for peer in peers if is_on_loopback else ():
        if not _is_here(_number(peer)):
            raise ValueError(f'--address={address} can be reached on this machine only, and the '
                             f'worker {peer} is on another one; give the address of this machine '
                             'in the network, or leave --address out.')
    return address


def _is_here(number: str) -> bool:
    """Whether an IPv4 address is one of this machine."""
    try:
        _bound(number, 0).close()
    except OSError:
        return False
    return True


def _own_host(peers: list[str]) -> str:
    """The host of `own_address`."""
    on_loopback = [peer for peer in peers if _number(peer).startswith('127.')]
    if on_loopback and len(on_loopback) < len(peers):
        raise ValueError(
            f'workers on other machines cannot reach {on_loopback[0]}, which is this machine '
            f'for whoever asks; name its address in the network.')
    return _own_number(peers[0])


def _number(address: str) -> str:
    """The IPv4 address of the host of 'host:port'.

    Raises:
      ValueError: the host is not known.
    """
    try:
        return socket.gethostbyname(split_address(address)[0])
    except OSError as error:
        raise _unknown(address, error) from error


def _own_number(peer: str) -> str:
    """The IPv4 address of this machine from which packets leave for a peer, 'host:port'.

    Raises:
      ValueError: the host is not known, or no interface leads there.
    """
    # Connecting a UDP socket sends nothing, but chooses the interface that leads to the peer.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((_number(peer), 9))
        except OSError as error:
            raise _unknown(peer, error) from error
        return str(sock.getsockname()[0])


def _unknown(address: str, error: OSError) -> ValueError:
    return ValueError(f'the host of {address} is not known here ({reason(error)}); correct it '
                      'in --devices.')


def family_of_all_addresses() -> socket.AddressFamily:
    """Returns the family that gRPC binds: IPv6, which takes IPv4 too, if ::1 exists."""
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(('::1', 0))
            return socket.AF_INET6
    except OSError:
        return socket.AF_INET


def _bound(host: str, port: int) -> socket.socket:
    """Returns a socket that is bound, does not listen, and does not share its port.

    The host '' means all addresses, of both versions of IP.
    """
    sock = socket.socket(socket.AF_INET if host else family_of_all_addresses())
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)   # ignores ended connections
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock
