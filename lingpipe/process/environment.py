"""Environment: the variables that lingpipe sets, and what a program leaves to the next one.

The C library moves its list of variables when one is added. A thread that reads a variable at that
moment, as those of TensorFlow and gRPC may, can then read freed memory and end the process. So the
trainer adds what these libraries read before it has threads. What only lingpipe reads never enters
the list: it is noted here, and the program that takes this one's place finds it in its environment.
"""
from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

# Whether TensorFlow's server sets SO_REUSEPORT: 'true' or 'false'.
REUSE_PORT = 'TF_GRPC_REUSE_PORT'

_noted: dict[str, str] = {}   # What the next program finds, by the names of its variables.


def add_all() -> None:
    """Adds what TensorFlow and gRPC will read; call it in lingpipe's own process, before threads.

    Values may change later: that moves nothing.
    """
    set_grpc()
    os.environ.setdefault(REUSE_PORT, 'false')


def set_grpc() -> None:
    """Has gRPC reach other machines as the system does; call it before gRPC's first call.

    gRPC would ask a DNS server even for a name in /etc/hosts, and wait for it in vain where nodes
    have none, or know each other by other means. A setting in the environment stays as it is.

    gRPC would also connect by way of the proxy that http_proxy and the like name, which does not
    reach workers, least of all those on loopback. So it is told of an empty one, which means none.
    """
    os.environ.setdefault('GRPC_DNS_RESOLVER', 'native')
    os.environ['grpc_proxy'] = ''


def leave(name: str, value: str) -> None:
    """Notes a variable for the program that takes this one's place."""
    _noted[name] = value


def left(name: str) -> str:
    """What this program, or else the one before it, has left by that name; '' if neither has."""
    return _noted.get(name) or os.environ.get(name, '')


def take(name: str) -> str:
    """Returns what is left by that name, which the program after this one no longer finds."""
    value = left(name)
    _noted.pop(name, None)
    os.environ.pop(name, None)
    return value


def start_trainer(flags: Sequence[str]) -> NoReturn:
    """Replaces the program of this process by the trainer, which finds what is left."""
    start_program([sys.executable, '-m', 'lingpipe.trainer', *flags])


def start_program(command: Sequence[str]) -> NoReturn:
    """Replaces the program of this process by another one, which finds what is left."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):   # Nobody reads it any more.
            stream.flush()
    os.execve(command[0], list(command), {**os.environ, **_noted})
