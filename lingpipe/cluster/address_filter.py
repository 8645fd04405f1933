"""Address filter: which addresses of this machine a port can be reached at.

TensorFlow's servers listen at every address of the machine, whatever they are told, and serve whoever connects from that moment on.
Whatever is done to their socket once it is there comes too late, so a `Guard` is there before it. The guard listens at the port
itself, and TensorFlow's socket joins it (SO_REUSEPORT, see socket(7)). For such a group of sockets Linux asks a program
(SO_ATTACH_REUSEPORT_CBPF) which of them gets a new connection:

    to an IPv4 address that is allowed      the second of the group, TensorFlow's
    to any other                            the first, the guard's, which takes no connection

The program stands before TensorFlow's socket does, and neither needs privileges.
"""
from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import resource
import socket
import stat
import struct
import sys

_SO_ATTACH_REUSEPORT_CBPF = 51      # of asm-generic/socket.h
_IP_MINTTL, _IPV6_MINHOPCOUNT = 21, 73   # of linux/in.h and linux/in6.h
_MOST_HOPS = 255                    # that a packet can have left; others start with 64 or 128
_NETWORK_HEADER = 0x100000000 - 0x100000   # where the program finds it: SKF_NET_OFF of linux/filter.h
_LOAD_BYTE, _LOAD_WORD, _AND, _JUMP_IF_EQUAL, _RETURN = 0x30, 0x20, 0x54, 0x15, 0x06   # of linux/bpf_common.h
_HIGH_NUMBER = 1000                 # of a file
_REUSE_PORT = 'TF_GRPC_REUSE_PORT'   # environment variable: whether TensorFlow's servers set SO_REUSEPORT
_CANNOT = 'TensorFlow listens at all addresses, and {} hold it to one; use 0.0.0.0 behind a firewall.'


def split_address(address: str) -> tuple[str, int]:
    """('host', 2222) of 'host:2222'.

    Raises:
      ValueError: there is no name or number of a host, or no port between 1 and 65535.
    """
    host, _, port = address.rpartition(':')
    is_host = re.fullmatch(r'[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]', host)
    if not is_host or not re.fullmatch('[0-9]{1,5}', port) or not 0 < int(port) < 65536:
        raise ValueError(f'{address!r} is no address; write host:port, as 127.0.0.1:2222.')
    return host, int(port)


def free_port() -> int:
    """A port that nobody listens at, at any address of this machine, for now."""
    with _bound('', 0) as one:
        return one.getsockname()[1]   # type: ignore[no-any-return]


def check_free(host: str, port: int) -> None:
    """Checks that a server can listen at host:port, and take the port at all other addresses too, as TensorFlow's does.

    Raises:
      OSError: the host is not this machine, or somebody listens at the port, at whatever address.
    """
    _bound(host, port).close()
    try:
        _bound('', port).close()
    except OSError as error:
        raise OSError(error.errno, f'{error.strerror} at another address of this machine, and TensorFlow takes the port at all of '
                                   f'them') from error


def own_address(peers: list[str]) -> str:
    """'host:port' at which the machines of `peers` ('host:port' each) reach this process: loopback if that is where they are.

    Raises:
      ValueError: a host that is not known, or some on loopback and others not.
    """
    try:
        here = [peer for peer in peers if socket.gethostbyname(split_address(peer)[0]).startswith('127.')]
        if here and len(here) < len(peers):
            raise ValueError(f'workers on other machines cannot reach {here[0]}, which is this machine for whoever asks; name its address '
                             f'in the network.')
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.connect((socket.gethostbyname(split_address(peers[0])[0]), 9))   # sends nothing, but chooses the way there
            return f'{one.getsockname()[0]}:{free_port()}'
    except OSError as error:
        raise ValueError(f'the host of {peers[0]} is not known here ({error}); correct it in --devices.') from error


def check_system(host: str) -> None:
    """Raises OSError if the host is not known, or if this system cannot hold a server to it."""
    allowed = _addresses(host)
    if allowed and sys.platform != 'linux':
        raise OSError(_CANNOT.format('only Linux can'))
    if allowed:
        with _guarding(0) as one:
            _attach(one, _program(allowed))


class Guard:
    """Holds TensorFlow's server to some addresses of this machine. Make it before the server; it lasts as long as this process."""

    def __init__(self, port: int, host: str):
        """
        Args:
          port: where the server is going to listen.
          host: whose IPv4 addresses it may be reached at; '0.0.0.0' means all, without a guard.

        Raises:
          OSError: the host is not known, the port is taken, or the system has no such programs.
        """
        self._port = port
        self._numbers: list[int] = []   # of the guard's sockets, which no garbage collector closes
        allowed = _addresses(host)
        if not allowed:
            return
        check_system(host)

        # Another process of this user may share the port already; that one must not be joined.
        _bound('', port).close()

        with _guarding(port) as one:
            _attach(one, _program(allowed))
            _fill(port)
            self._numbers.append(one.detach())
        os.environ[_REUSE_PORT] = '1'

    def check(self) -> None:
        """Completes the guard now that the server is there.

        When this process ends, Linux closes its files in one order or the other, and whenever a socket leaves the group, the last
        one takes its place. A second socket of the guard, behind TensorFlow's, has TensorFlow's closed before the guard's first
        or replaced at that place.

        Raises:
          OSError: a socket of this process that listens at the port is not in the guard's group.
        """
        if not self._numbers:
            return
        own = _kind(self._numbers[0])
        others = [kind for name in os.listdir('/proc/self/fd')
                  if int(name) not in self._numbers and (kind := _kind(int(name))) and kind[-1] == self._port]
        if not others or any(kind != own for kind in others):
            raise OSError(_CANNOT.format(f'this system cannot (sockets of the kinds {others} listen where {own} was to)'))
        with _guarding(self._port) as one:
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            self._numbers.append(fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, min(_HIGH_NUMBER, most - 1)))


def _addresses(host: str) -> list[str]:
    """The IPv4 addresses of a host; none for 0.0.0.0, which means all."""
    found = sorted({str(info[4][0]) for info in socket.getaddrinfo(host, None, socket.AF_INET)})
    return [] if '0.0.0.0' in found else found


def _bound(host: str, port: int) -> socket.socket:
    """A socket that shares its port with nobody and does not listen; '' stands for all addresses, of both versions of IP."""
    one = socket.socket(socket.AF_INET if host else _family())
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)   # connections that have ended do not matter
        if one.family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        one.bind((host, port))
    except OSError:
        one.close()
        raise
    return one


def _guarding(port: int) -> socket.socket:
    """A socket that listens at the port of all addresses, shares it, and takes packets that have come over no hop."""
    one = socket.socket(_family())
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.setsockopt(socket.IPPROTO_IP, _IP_MINTTL, _MOST_HOPS)
    if one.family == socket.AF_INET6:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        one.setsockopt(socket.IPPROTO_IPV6, _IPV6_MINHOPCOUNT, _MOST_HOPS)
    one.bind(('', port))
    one.listen(0)
    return one


def _fill(port: int) -> None:
    """Takes the only place in the guard's queue, so that it drops this machine's packets too, which have come over no hop."""
    with contextlib.suppress(OSError), socket.socket() as one:   # or there is no loopback
        one.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, _MOST_HOPS)
        one.settimeout(1.)
        one.connect(('127.0.0.1', port))


def _family() -> socket.AddressFamily:
    """Returns the family of the socket that gRPC binds: IPv6, which takes IPv4 too, if ::1 is there."""
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(('::1', 0))
            return socket.AF_INET6
    except OSError:
        return socket.AF_INET


def _kind(number: int) -> tuple[int, ...]:
    """(family, whether it takes IPv6 only, port) of a listening TCP socket of this process; () if it is something else."""
    try:
        copy = os.dup(number)
    except OSError:   # closed meanwhile
        return ()
    if not stat.S_ISSOCK(os.fstat(copy).st_mode):
        os.close(copy)
        return ()
    with socket.socket(fileno=copy) as one:
        if one.family not in (socket.AF_INET, socket.AF_INET6) or one.type != socket.SOCK_STREAM or \
                not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return ()
        is_v6_only = one.family == socket.AF_INET6 and one.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        return int(one.family), int(is_v6_only), one.getsockname()[1]


def _attach(one: socket.socket, program: bytes) -> None:
    """Gives the group of a socket its program (struct sock_fprog of linux/filter.h)."""
    buffer = ctypes.create_string_buffer(program, len(program))
    try:
        one.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF,
                       struct.pack('HL', len(program) // 8, ctypes.addressof(buffer)))
    except OSError as error:
        raise OSError(_CANNOT.format(f'this system cannot ({error})')) from error


def _program(allowed: list[str]) -> bytes:
    """The program: 1 for IPv4 with a destination among `allowed`, 0 for all else."""
    def instruction(code: int, k: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack('HBBI', code, if_true, if_false, k)

    words = [struct.unpack('!I', socket.inet_aton(address))[0] for address in allowed]
    return b''.join([
        instruction(_LOAD_BYTE, _NETWORK_HEADER),
        instruction(_AND, 0xf0),                                                  # the version of IP
        instruction(_JUMP_IF_EQUAL, 0x40, if_false=len(words) + 1),
        instruction(_LOAD_WORD, _NETWORK_HEADER + 16),                            # the destination
        *(instruction(_JUMP_IF_EQUAL, word, if_true=len(words) - i) for i, word in enumerate(words)),
        instruction(_RETURN, 0),
        instruction(_RETURN, 1)])
