"""User filter: other users of this machine cannot send anything to TensorFlow's server.

An address does not keep them out: everyone on a machine reaches its loopback. A Unix socket tells
who connects, but TensorFlow's server has TCP only, and gRPC accepts connections by itself. So every
connection starts with a filter that lets no byte of the client in, only TCP's headers. A thread
looks for new connections. Linux says whose the other end is, if that is on this machine:

    this user, root, or another machine    the filter is taken off, and the client's TCP sends its
                                           first bytes again, 0.2 s after the first time
    another user                           the connection is shut down, and a line names the user

A connection gets the filter from the socket that listens (SO_ATTACH_FILTER, socket(7)), and nobody
can connect before that socket has it; address_filter.py sees to that. None of this needs
privileges on older kernels. On newer ones, admission.py does without filters.

Where nobody else uses the machine or pod, LINGPIPE_LET_IN_USERS=all in the environment lets in
everybody at once.
"""
from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import pwd
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

from lingpipe.process import closed_pipe

# Options of sockets that Python has no names for (asm-generic/socket.h).
_SO_ATTACH_FILTER = 26
_SO_GET_FILTER = 26
_SO_DETACH_FILTER = 27

_HEADERS_ONLY = struct.pack('HBBI', 0x06, 0, 0, 1)   # "return 1": Linux never cuts off the header
_ESTABLISHED, _ASKS, _LISTENS = '01', '02', '0A'     # in /proc/net/tcp (net/tcp_states.h)
_LOOK_EVERY_S = 0.1   # before TCP sends again what was dropped
_LOOKS = 3            # a table that changes while it is read can leave out a row
_ROOT = 0
LET_IN = 'LINGPIPE_LET_IN_USERS'   # environment variable

Client: TypeAlias = tuple[str, int]
"""The IPv4 address and the port of the other end of a connection."""

_Owners: TypeAlias = dict[tuple[str, ...], int]
"""The user of each TCP socket, by its addresses and state as /proc/net/tcp has them."""


def check_system() -> None:
    """Raises OSError if this system does not say whose a TCP socket is."""
    with socket.create_server(('', 0)) as sock:
        if _owner(_owners(), sock.getsockname(), ('0.0.0.0', 0), _LISTENS) != os.geteuid():
            raise OSError('/proc/net/tcp does not list the sockets of this process')


def lets_all_in() -> bool:
    """Whether the environment says that other users of this machine may connect."""
    return os.environ.get(LET_IN) == 'all'


def may_hold() -> bool:
    """Whether this process may attach the filter to its sockets."""
    with socket.create_server(('127.0.0.1', 0)) as sock:
        try:
            hold(sock.fileno())
        except PermissionError:
            return False
    return True


def hold(descriptor: int) -> None:
    """Makes the connections of a socket that listens start without the bytes of their clients."""
    program = ctypes.create_string_buffer(_HEADERS_ONLY, len(_HEADERS_ONLY))
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER,
                        struct.pack('HL', 1, ctypes.addressof(program)))


def start(port: int, are_held: bool = True) -> None:
    """Starts the thread that lets in or shuts down connections of this process's port.

    Args:
      port: of this process's server.
      are_held: whether connections have the filter until they are let in.
    """
    threading.Thread(target=_look_for_ever, args=(port, are_held), name='user filter',
                     daemon=True).start()


def _look_for_ever(port: int, are_held: bool) -> None:
    """Decides about new connections, and names each user whose connection is shut down, once."""
    decided: set[int] = set()
    named: set[str] = set()

    def tell(user: str) -> None:
        if user not in named:
            named.add(user)
            closed_pipe.say(f'port {port}: shut down a connection of {user} of this machine; only '
                            'root and the user of this process are let in', sys.stderr)

    while True:
        numbers = _sockets()
        decided &= numbers.keys()
        owners = _looks()   # for all of them: the table is long when many have come
        for inode in numbers.keys() - decided:
            with contextlib.suppress(OSError):   # it is looked at again, unless it has ended
                _decide(numbers[inode], inode, port, are_held, owners, tell)
                decided.add(inode)
        time.sleep(_LOOK_EVERY_S)


def _sockets() -> dict[int, int]:
    """Returns the file descriptors of this process that are sockets, by inode."""
    numbers = {}
    for name in os.listdir('/proc/self/fd'):
        try:
            status = os.fstat(int(name))
        except OSError:   # it has been closed meanwhile
            continue
        if stat.S_ISSOCK(status.st_mode):
            numbers[status.st_ino] = int(name)
    return numbers


def stranger(sock: socket.socket) -> str:
    """Names the user at the other end of a connection, if that must not be let in.

    Returns '' for root, the user of this process, and another machine.

    Raises:
      OSError: the connection has ended.
    """
    return _stranger(sock, _looks())


def _stranger(sock: socket.socket, owners: Callable[[int], _Owners]) -> str:
    """Does what `stranger` does; `owners` are of looks since the connection came to be."""
    peer, own = sock.getpeername()[:2], sock.getsockname()[:2]
    if not _is_here(_version_4(peer[0])):
        return ''
    for look in range(_LOOKS):
        user = _owner(owners(look), peer, own, _ESTABLISHED)
        if user is not None:
            break
    return '' if is_let_in(user) else name(user)


def is_let_in(user: int | None) -> bool:
    """Whether the user of this id may connect."""
    return user in (os.geteuid(), _ROOT)


def users_who_ask(port: int, addresses: Collection[str]) -> dict[Client, int]:
    """Returns the clients of this machine that ask for a connection, each with its user's id.

    Args:
      port: that they ask for.
      addresses: those of this machine that they ask for.
    """
    asked_for = {_written(address, port, family) for address in addresses
                 for family in (socket.AF_INET, socket.AF_INET6)}
    users = {}
    for row in _rows():
        if row[2] in asked_for and row[3] == _ASKS and row[9] != '0':
            written, _, client_port = row[1].partition(':')
            # The last word of an IPv6 address is the IPv4 address.
            address = socket.inet_ntoa(struct.pack('=I', int(written[-8:], 16)))
            users[address, int(client_port, 16)] = int(row[7])
    return users


def _decide(descriptor: int, inode: int, port: int, are_held: bool,
            owners: Callable[[int], _Owners], tell: Callable[[str], None]) -> None:
    """Lets a connection in, or tells whose it is and shuts it down.

    Raises:
      OSError: the connection has ended.
    """
    # Its copy stays the same socket, even if the number gets another meaning.
    copy = os.dup(descriptor)
    if os.fstat(copy).st_ino != inode:   # It has another meaning already, of a file perhaps.
        os.close(copy)
        raise OSError(f'the file descriptor {descriptor} is another socket or file by now')
    with socket.socket(fileno=copy) as sock:
        if not _is_connection(sock, port) or are_held and not _is_held(sock):
            return

        user = _stranger(sock, owners)
        if user:
            if _state(sock) == _ESTABLISHED:
                tell(user)
            sock.shutdown(socket.SHUT_RDWR)
        elif are_held:
            sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)


def _is_connection(sock: socket.socket, port: int) -> bool:
    """Whether a socket is a connection to the port."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
        return False
    return (sock.getsockname()[1] == port
            and not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _is_held(sock: socket.socket) -> bool:
    """Whether a socket still has the filter."""
    return bool(sock.getsockopt(socket.SOL_SOCKET, _SO_GET_FILTER, len(_HEADERS_ONLY)))


def _state(sock: socket.socket) -> str:
    """Returns the state of a TCP socket as /proc/net/tcp has it."""
    return f'{sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]:02X}'


def _is_here(address: str) -> bool:
    """Whether an IPv4 address is one of this machine."""
    if address.startswith('127.'):
        return True
    # Connecting a UDP socket sends nothing. It gets the address from which the packets would leave.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((address, 9))
        return bool(sock.getsockname()[0] == address)


def _owner(owners: _Owners, local: tuple[str, int], remote: tuple[str, int], state: str
           ) -> int | None:
    """Returns the user id of a TCP socket of this machine; None if there is no such socket."""
    wanted = [(_written(*local, family), _written(*remote, family), state)
              for family in (socket.AF_INET, socket.AF_INET6)]
    return next((owners[one] for one in wanted if one in owners), None)


def _looks() -> Callable[[int], _Owners]:
    """Returns a function of a look's number; each look is taken when it is first asked for."""
    return functools.cache(lambda look: _owners())


def _owners() -> _Owners:
    """Returns the user of each TCP socket of this machine that no one has closed yet.

    A socket that was closed while it still sends has no inode; Linux shows it as root's.
    """
    return {tuple(row[1:4]): int(row[7]) for row in _rows() if row[9] != '0'}


def _rows() -> Iterator[list[str]]:
    """Yields the rows of /proc/net/tcp and /proc/net/tcp6, without their headings."""
    for path in ('/proc/net/tcp', '/proc/net/tcp6'):
        try:
            with open(path, encoding='ascii') as file:
                rows = [line.split() for line in file]
        except FileNotFoundError:   # no IPv6
            continue
        yield from rows[1:]


def _written(address: str, port: int, family: socket.AddressFamily) -> str:
    """Writes an IPv4 address and a port as /proc/net/tcp or /proc/net/tcp6 does."""
    number = _version_4(address)
    packed = (socket.inet_aton(number) if family == socket.AF_INET
              else socket.inet_pton(family, f'::ffff:{number}'))
    words = struct.unpack(f'={len(packed) // 4}I', packed)
    return ''.join(f'{word:08X}' for word in words) + f':{port:04X}'


def _version_4(address: str) -> str:
    """Returns 127.0.0.1 for ::ffff:127.0.0.1, as a socket of IPv6 calls it."""
    return address.removeprefix('::ffff:')


def name(user: int | None) -> str:
    """Returns what messages call the user of an id."""
    if user is None:
        return 'an unknown user'
    try:
        return f'user {pwd.getpwuid(user).pw_name}'
    except KeyError:
        return f'user {user}'
