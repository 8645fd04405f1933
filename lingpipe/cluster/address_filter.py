"""Address filter: TensorFlow's server is reached at some addresses of this machine only.

The obvious way is to bind the server's socket to these addresses. But TensorFlow's server listens
at every address of the machine, whatever it is told, and serves whoever connects from that moment
on. Whatever is done to its socket afterwards comes too late: a filter that was attached at once
(SO_ATTACH_FILTER) let connections through for 6 to 115 ms of every start. A firewall or a network
namespace is there before the server, but needs privileges.

Here a `Guard` listens at the port before the server does, and TensorFlow's socket shares the port
with it (SO_REUSEPORT, socket(7)). For such a group of sockets, Linux asks a program which of them
gets a new connection (SO_ATTACH_REUSEPORT_CBPF):

    to an IPv4 address that is allowed     socket 1 of the group: TensorFlow's
    to any other address                   socket 0 of the group: the guard's, which accepts none

The program is attached before TensorFlow's socket exists, and none of this needs privileges:

    socket 0, the guard's     bind, program, fill --------------------- check ----- end
    socket 1, TensorFlow's                          bind, listen ------------------ end
    socket 2, the guard's                                               bind ------ end

Two things keep socket 0 from making connections that nobody serves. It drops packets that have come
over a router or start with the usual number of hops (IP_MINTTL), and its queue is full. Socket 2
matters when the process ends: Linux closes the sockets in one order or the other, and whenever one
leaves the group, the last one takes its place. Without socket 2, that could be TensorFlow's.

The program is assembled by hand. libpcap, which scapy uses too, compiles programs that read a
packet from its first byte. This one starts behind the header of TCP, and finds that of IP by
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
from typing import NamedTuple

from lingpipe.cluster.ports import check_free, family_of_all_addresses

# Options of sockets that Python has no names for.
_SO_ATTACH_REUSEPORT_CBPF = 51      # asm-generic/socket.h
_IP_MINTTL = 21                     # linux/in.h
_IPV6_MINHOPCOUNT = 73              # linux/in6.h

# Instructions (linux/bpf_common.h), and where a program finds the header of IP (linux/filter.h).
_LOAD_BYTE, _LOAD_WORD, _AND, _JUMP_IF_EQUAL, _RETURN = 0x30, 0x20, 0x54, 0x15, 0x06
_SKF_NET_OFF = 0x100000000 - 0x100000

_MOST_HOPS = 255                     # a packet cannot have more left; most start with 64 or 128
_HIGH_NUMBER = 1000                  # of an open file
_REUSE_PORT = 'TF_GRPC_REUSE_PORT'   # environment variable: whether TensorFlow sets SO_REUSEPORT
_CANNOT = ('TensorFlow listens at all addresses, and {} hold it to one; use 0.0.0.0 behind a '
           'firewall.')


def check_system(host: str) -> None:
    """Raises OSError if the host is not known, or if this system cannot hold a server to it."""
    allowed = _addresses(host)
    if not allowed:
        return
    if sys.platform != 'linux':
        raise OSError(_CANNOT.format('only Linux can'))
    with _guarding_socket(0) as one:
        _attach(one, _program(allowed))


class Guard:
    """Holds TensorFlow's server to some addresses, for as long as this process lives.

    Make it before the server opens its port, and call `check` when the server has.
    """

    def __init__(self, port: int, host: str):
        """
        Args:
          port: the port at which the server is going to listen.
          host: its IPv4 addresses are those that are allowed; '0.0.0.0' means all, without a guard.

        Raises:
          OSError: the host is not known, the port is taken, or the system cannot do this.
        """
        self._port = port
        self._numbers: list[int] = []   # open files of the guard, which no garbage collector closes
        allowed = _addresses(host)
        if not allowed:
            return
        check_system(host)

        # Another process of this user may be ready to share the port. Its group must not be joined.
        check_free('', port)

        with _guarding_socket(port) as one:
            _attach(one, _program(allowed))
            _fill_queue(port)
            self._numbers.append(one.detach())
        os.environ[_REUSE_PORT] = '1'

    def check(self) -> None:
        """Checks that the server's socket is in the group, and adds the guard's second socket.

        Raises:
          OSError: this process listens at the port with a socket that is not in the guard's group.
        """
        if not self._numbers:
            return

        guard = _listener(self._numbers[0])
        others = [_listener(int(name)) for name in os.listdir('/proc/self/fd')
                  if int(name) not in self._numbers]
        servers = [other for other in others if other and other.port == self._port]
        if not servers or any(server != guard for server in servers):
            raise OSError(_CANNOT.format(
                f'this system cannot ({servers} listen where {guard} was to)'))

        # Files are closed in the order of their numbers, or the other way round. With a high number
        # for the second socket, TensorFlow's is between the guard's two in both.
        with _guarding_socket(self._port) as one:
            max_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            number = min(_HIGH_NUMBER, max_files - 1)
            self._numbers.append(fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, number))


def _addresses(host: str) -> list[str]:
    """The IPv4 addresses of a host; none for 0.0.0.0, which means all."""
    infos = socket.getaddrinfo(host, None, socket.AF_INET)
    addresses = sorted({str(info[4][0]) for info in infos})
    return [] if '0.0.0.0' in addresses else addresses


# The guard's sockets.

def _guarding_socket(port: int) -> socket.socket:
    """A socket that listens at all addresses and shares its port, but hardly takes a connection."""
    one = socket.socket(family_of_all_addresses())
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.setsockopt(socket.IPPROTO_IP, _IP_MINTTL, _MOST_HOPS)
    if one.family == socket.AF_INET6:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        one.setsockopt(socket.IPPROTO_IPV6, _IPV6_MINHOPCOUNT, _MOST_HOPS)
    one.bind(('', port))
    one.listen(0)   # a queue of one
    return one


def _fill_queue(port: int) -> None:
    """Takes the only place in the queue, with a packet that starts with the most hops.

    From then on the socket drops such packets too, which this machine and its neighbours can send.
    """
    with contextlib.suppress(OSError), socket.socket() as one:   # there may be no loopback
        one.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, _MOST_HOPS)
        one.settimeout(1.)
        one.connect(('127.0.0.1', port))


class _Listener(NamedTuple):
    """What two sockets must have in common to be of one group."""
    family: int
    is_v6_only: bool
    port: int


def _listener(number: int) -> _Listener | None:
    """Describes an open file of this process; None if it is no TCP socket that listens."""
    try:
        copy = os.dup(number)
    except OSError:   # it was closed meanwhile
        return None
    if not stat.S_ISSOCK(os.fstat(copy).st_mode):
        os.close(copy)
        return None

    with socket.socket(fileno=copy) as one:
        is_tcp = (one.family in (socket.AF_INET, socket.AF_INET6)
                  and one.type == socket.SOCK_STREAM)
        if not is_tcp or not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return None
        is_v6_only = (one.family == socket.AF_INET6
                      and bool(one.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)))
        return _Listener(int(one.family), is_v6_only, one.getsockname()[1])


# The program.

def _attach(one: socket.socket, program: bytes) -> None:
    """Gives the group of a socket its program (struct sock_fprog of linux/filter.h)."""
    buffer = ctypes.create_string_buffer(program, len(program))
    num_instructions = len(program) // 8
    try:
        one.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF,
                       struct.pack('HL', num_instructions, ctypes.addressof(buffer)))
    except OSError as error:
        raise OSError(_CANNOT.format(f'this system cannot ({error})')) from error


def _program(allowed: list[str]) -> bytes:
    """Assembles the program that returns the number of the socket for a new connection.

    It returns 1 for IPv4 with a destination among `allowed`, and 0 for everything else. A jump
    skips so many of the instructions that follow it.
    """
    def instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack('HBBI', code, if_true, if_false, value)

    words = [struct.unpack('!I', socket.inet_aton(address))[0] for address in allowed]
    num_words = len(words)
    return b''.join([
        # Is it version 4 of IP?
        instruction(_LOAD_BYTE, _SKF_NET_OFF),
        instruction(_AND, 0xf0),
        instruction(_JUMP_IF_EQUAL, 0x40, if_false=num_words + 1),

        # Is the destination one of the words?
        instruction(_LOAD_WORD, _SKF_NET_OFF + 16),
        *(instruction(_JUMP_IF_EQUAL, word, if_true=num_words - i) for i, word in enumerate(words)),

        instruction(_RETURN, 0),
        instruction(_RETURN, 1),
    ])
