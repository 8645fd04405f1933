"""Address filter: lets others reach TensorFlow's server at some addresses of this machine only.

Of the users of this machine, it lets only root and the user of the process in (user_filter.py, or
else admission.py).

The obvious way is to bind the server's socket to these addresses. But TensorFlow's server listens
at every address of the machine, whatever it is told, and serves everyone who connects from that
moment on. Anything that is done to its socket afterwards comes too late: a filter that was attached
at once (SO_ATTACH_FILTER) let connections through for 6 to 115 ms of every start. A firewall or a
network namespace can be there before the server, but needs privileges.

Here a `Guard` listens at the port before the server does, and TensorFlow's socket shares the port
with it (SO_REUSEPORT, socket(7)). For such a group of sockets, Linux asks a program which of them
gets a new connection (SO_ATTACH_REUSEPORT_CBPF):

    to an IPv4 address that is allowed     socket 1 of the group: TensorFlow's
    to any other address                   socket 0 of the group: the guard's, which accepts none

The program is attached before TensorFlow's socket exists, and none of this needs privileges. Until
`check`, it sends every connection to socket 0, so that TensorFlow's socket gets the filter of
user_filter.py before its first connection:

    socket 0, the guard's     bind, program, fill --------------------- check ----- end
    socket 1, TensorFlow's                          bind, listen ------ filter ---- end
    socket 2, the guard's                                               bind ------ end

Two things keep socket 0 from making connections that nobody serves. It drops packets that have come
over a router or start with the usual number of hops (IP_MINTTL), and its queue is full. Socket 2
matters when the process ends: Linux closes the sockets in ascending or descending order, and when a
socket leaves the group, the last socket takes its place. Without socket 2, that could be
TensorFlow's socket in the place of socket 0.

The program is assembled by hand. libpcap, which scapy uses too, compiles programs that read a
packet from its first byte. This program starts behind the TCP header, and finds the IP header by
SKF_NET_OFF.
"""
from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import resource
import socket
import stat
import struct
import sys
from collections.abc import Collection
from typing import NamedTuple

from lingpipe.cluster import admission, user_filter
from lingpipe.cluster.ports import check_free, family_of_all_addresses
from lingpipe.cluster.user_filter import Client
from lingpipe.process import environment
from lingpipe.process.error_text import reason

# Options of sockets that Python has no names for.
_SO_ATTACH_REUSEPORT_CBPF = 51      # asm-generic/socket.h
_IP_MINTTL = 21                     # linux/in.h
_IPV6_MINHOPCOUNT = 73              # linux/in6.h

# Instructions (linux/bpf_common.h), and where a program finds the header of IP (linux/filter.h).
_LOAD_BYTE, _LOAD_HALF, _LOAD_WORD = 0x30, 0x28, 0x20
_AND, _JUMP_IF_EQUAL, _RETURN = 0x54, 0x15, 0x06
_SKF_NET_OFF = 0x100000000 - 0x100000
_SKF_AD_IFINDEX = 0x100000000 - 0x1000 + 8   # loads the number of the interface

_MOST_HOPS = 255                     # the largest number; most packets start with 64 or 128 hops
_HIGH_NUMBER = 1000                  # of a file descriptor
_CANNOT = ('TensorFlow listens at all addresses, and {} hold it to one; use 0.0.0.0 behind a '
           'firewall.')


def check_system(host: str) -> None:
    """Raises OSError if the host is not known, or if this system cannot hold a server to it."""
    allowed = _addresses(host)
    if not allowed:
        return
    if sys.platform != 'linux':
        raise OSError(_CANNOT.format('only Linux can'))
    with _guarding_socket(0) as sock:
        _attach(sock, _program(allowed))
    if user_filter.lets_all_in():
        return
    try:
        user_filter.check_system()
    except OSError as error:
        raise OSError(_CANNOT.format(f'this system cannot ({reason(error)})')) from error


class Guard:
    """Holds TensorFlow's server to some addresses, for as long as this process lives.

    Make it before the server opens its port, and call `check` when the server has. Connections come
    through from then on.
    """

    def __init__(self, port: int, host: str):
        """
        Args:
          port: the port at which the server is going to listen.
          host: a name or number. Connections to its IPv4 addresses are allowed. '0.0.0.0' means
            all addresses, and needs no guard.

        Raises:
          OSError: the host is not known, the port is taken, or the system cannot do this.
        """
        self._port = port
        # Plain file descriptors, which no garbage collector closes.
        self._descriptors: list[int] = []
        self._allowed = _addresses(host)
        if not self._allowed:
            return
        check_system(host)

        # Another process of this user may share the port. Its group must not be joined.
        check_free('', port)

        with _guarding_socket(port) as sock:
            _attach(sock, _program([]))
            _fill_queue(port)
            self._descriptors.append(sock.detach())
        os.environ[environment.REUSE_PORT] = 'true'

    def check(self) -> None:
        """Checks that the server's socket is in the group, and lets connections come through to it.

        Raises:
          OSError: this process listens at the port with a socket that is not in the guard's group.
        """
        if not self._descriptors:
            return

        guard = _listener(self._descriptors[0])
        others = {int(name): _listener(int(name)) for name in os.listdir('/proc/self/fd')
                  if int(name) not in self._descriptors}
        servers = {number: other for number, other in others.items()
                   if other and other.port == self._port}
        if not servers or any(server != guard for server in servers.values()):
            raise OSError(_CANNOT.format(
                f'this system cannot ({list(servers.values())} listen where {guard} was to)'))

        # Linux closes files by ascending or by descending number. With a high number for the second
        # socket, TensorFlow's socket is between the guard's two sockets in both orders.
        with _guarding_socket(self._port) as sock:
            max_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            least = min(_HIGH_NUMBER, max_files - 1)
            self._descriptors.append(fcntl.fcntl(sock, fcntl.F_DUPFD_CLOEXEC, least))

            self._let_in(sock, servers)

    def _let_in(self, sock: socket.socket, servers: Collection[int]) -> None:
        """Lets in connections of this user, of root and of other machines.

        Args:
          sock: one of the guard's sockets.
          servers: file descriptors of TensorFlow's.
        """
        if user_filter.lets_all_in():
            _attach(sock, _program(self._allowed))
        elif user_filter.may_hold():
            for number in servers:
                user_filter.hold(number)
            user_filter.start(self._port)
            _attach(sock, _program(self._allowed))
        else:
            _attach(sock, _program(self._allowed, ()))
            admission.start(self._port, self._allowed, self._let_in_clients)

    def _let_in_clients(self, clients: Collection[Client]) -> None:
        """Lets in connections of other machines, and of some clients of this one."""
        with socket.socket(fileno=os.dup(self._descriptors[0])) as sock:
            _attach(sock, _program(self._allowed, clients))


def _addresses(host: str) -> list[str]:
    """Returns the IPv4 addresses of a host; none for 0.0.0.0, which means all."""
    infos = socket.getaddrinfo(host, None, socket.AF_INET)
    addresses = sorted({str(info[4][0]) for info in infos})
    return [] if '0.0.0.0' in addresses else addresses


# The guard's sockets.

def _guarding_socket(port: int) -> socket.socket:
    """Returns a socket that listens at a port it shares, and makes almost no connections."""
    sock = socket.socket(family_of_all_addresses())
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.setsockopt(socket.IPPROTO_IP, _IP_MINTTL, _MOST_HOPS)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_MINHOPCOUNT, _MOST_HOPS)
    sock.bind(('', port))
    sock.listen(0)   # a queue of one
    return sock


def _fill_queue(port: int) -> None:
    """Fills the only place in the queue, with a connection whose packets have the most hops.

    From then on the socket drops even such packets, which this machine and its neighbours can send.
    """
    with contextlib.suppress(OSError), socket.socket() as sock:   # without loopback it fails
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, _MOST_HOPS)
        sock.settimeout(1.)
        sock.connect(('127.0.0.1', port))


class _Listener(NamedTuple):
    """What two sockets must have in common to be of one group."""
    family: int
    is_v6_only: bool
    port: int


def _listener(descriptor: int) -> _Listener | None:
    """Describes a file descriptor; returns None if it is no TCP socket that listens."""
    try:
        copy = os.dup(descriptor)
    except OSError:   # it has been closed meanwhile
        return None
    if not stat.S_ISSOCK(os.fstat(copy).st_mode):
        os.close(copy)
        return None

    with socket.socket(fileno=copy) as sock:
        is_tcp = (sock.family in (socket.AF_INET, socket.AF_INET6)
                  and sock.type == socket.SOCK_STREAM)
        if not is_tcp or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return None
        is_v6_only = (sock.family == socket.AF_INET6
                      and bool(sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)))
        return _Listener(int(sock.family), is_v6_only, sock.getsockname()[1])


# The program.

def _attach(sock: socket.socket, program: bytes) -> None:
    """Attaches the program to the group of a socket (struct sock_fprog of linux/filter.h)."""
    buffer = ctypes.create_string_buffer(program, len(program))
    num_instructions = len(program) // 8
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF,
                       struct.pack('HL', num_instructions, ctypes.addressof(buffer)))
    except OSError as error:
        raise OSError(_CANNOT.format(f'this system cannot ({reason(error)})')) from error


def _program(allowed: list[str], clients: Collection[Client] | None = None) -> bytes:
    """Assembles the program that returns the number of the socket for a new connection.

    The program returns 1 for IPv4 with a destination among `allowed`, and 0 for everything else.
    With `clients`, it returns 1 for these alone if the connection comes from this machine.
    """
    words = list(map(_word, allowed))
    num_words = len(words)
    return b''.join([
        # Is it version 4 of IP?
        _instruction(_LOAD_BYTE, _SKF_NET_OFF),
        _instruction(_AND, 0xf0),
        _instruction(_JUMP_IF_EQUAL, 0x40, if_false=num_words + 1),

        # Is the destination one of the words?
        _instruction(_LOAD_WORD, _SKF_NET_OFF + 16),
        *(_instruction(_JUMP_IF_EQUAL, word, if_true=num_words - i)
          for i, word in enumerate(words)),

        _instruction(_RETURN, 0),
        *(_is_client(clients) if clients is not None else ()),
        _instruction(_RETURN, 1),
    ])


def _is_client(clients: Collection[Client]) -> list[bytes]:
    """Assembles the end of the program, which returns 1 for the clients and for other machines.

    It returns 0 for all other connections of this machine, all of which come through loopback.

    The port is behind the 20 bytes of a header of IP without options.
    """
    program = [_instruction(_LOAD_WORD, _SKF_AD_IFINDEX),
               _instruction(_JUMP_IF_EQUAL, socket.if_nametoindex('lo'), if_true=1),
               _instruction(_RETURN, 1),
               _instruction(_LOAD_BYTE, _SKF_NET_OFF),
               _instruction(_JUMP_IF_EQUAL, 0x45, if_true=1),
               _instruction(_RETURN, 0)]
    for address, port in clients:
        program += [_instruction(_LOAD_WORD, _SKF_NET_OFF + 12),
                    _instruction(_JUMP_IF_EQUAL, _word(address), if_false=3),
                    _instruction(_LOAD_HALF, _SKF_NET_OFF + 20),
                    _instruction(_JUMP_IF_EQUAL, port, if_false=1),
                    _instruction(_RETURN, 1)]
    return [*program, _instruction(_RETURN, 0)]


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Assembles an instruction; a jump skips the given number of instructions after it."""
    return struct.pack('HBBI', code, if_true, if_false, value)


def _word(address: str) -> int:
    """Returns an IPv4 address as the program loads it."""
    word: int = struct.unpack('!I', socket.inet_aton(address))[0]
    return word
