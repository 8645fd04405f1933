"""Listening: which addresses of this machine a port can be reached at.

TensorFlow's servers listen at every address of the machine, whatever they are told. Linux lets any process give its own listening socket
a filter (a classic BPF program, see socket(7), SO_ATTACH_FILTER); this one drops what is sent to another IPv4 address than those allowed,
and all of IPv6, before a connection exists. Connections inherit it.
"""
from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys

_SO_ATTACH_FILTER = 26               # of asm-generic/socket.h
_NETWORK_HEADER = 0x100000000 - 0x100000   # SKF_NET_OFF of linux/filter.h
_LOAD_BYTE, _LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x30, 0x20, 0x15, 0x06


def split_address(address: str) -> tuple[str, int]:
    """('host', 2222) of 'host:2222'.

    Raises:
      ValueError: there is no host, or no port between 1 and 65535.
    """
    host, colon, port = address.rpartition(':')
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f'{address!r} is no address; write host:port, as 127.0.0.1:2222.')
    return host, int(port)


def free_port() -> int:
    """A port of loopback that nobody listens at, for now."""
    with socket.socket() as one:
        one.bind(('127.0.0.1', 0))
        return one.getsockname()[1]   # type: ignore[no-any-return]


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


def restrict(port: int, host: str) -> bool:
    """Lets this process's listening sockets of a port be reached only at the addresses of `host`; '0.0.0.0' leaves them all.

    Returns:
      Whether there was a socket, or nothing to do.

    Raises:
      OSError: the host is not known, or the system has no such filters.
    """
    allowed = sorted({str(info[4][0]) for info in socket.getaddrinfo(host, None, socket.AF_INET)})
    if '0.0.0.0' in allowed:
        return True
    if sys.platform != 'linux':
        raise OSError(f'TensorFlow listens at all addresses, and only Linux can hold it to {host}; use 0.0.0.0 behind a firewall.')
    code = _filter(allowed)
    found = False
    for name in os.listdir('/proc/self/fd'):
        try:
            one = socket.socket(fileno=os.dup(int(name)))
        except OSError:   # no socket, or closed meanwhile
            continue
        with one:
            is_ours = one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM
            if is_ours and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and one.getsockname()[1] == port:
                buffer = ctypes.create_string_buffer(code, len(code))
                one.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack('HL', len(code) // 8, ctypes.addressof(buffer)))
                found = True
    return found


def _filter(allowed: list[str]) -> bytes:
    """The program: IPv4, and a destination among `allowed`, or nothing."""
    def instruction(code: int, if_true: int, if_false: int, k: int) -> bytes:
        return struct.pack('HBBI', code, if_true, if_false, k)

    words = [struct.unpack('!I', socket.inet_aton(address))[0] for address in allowed]
    made = [instruction(_LOAD_BYTE, 0, 0, _NETWORK_HEADER)]
    made += [instruction(0x54, 0, 0, 0xf0), instruction(_JUMP_IF_EQUAL, 0, len(words) + 1, 0x40)]   # version 4 of the header
    made += [instruction(_LOAD_WORD, 0, 0, _NETWORK_HEADER + 16)]
    made += [instruction(_JUMP_IF_EQUAL, len(words) - i, 0, word) for i, word in enumerate(words)]
    return b''.join(made) + instruction(_RETURN, 0, 0, 0) + instruction(_RETURN, 0, 0, 0xffffffff)
