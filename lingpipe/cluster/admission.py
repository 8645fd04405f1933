"""Admission: keeps out other users of this machine where sockets may not have filters.

user_filter.py holds each connection by a filter of its socket until it is known whose it is. Newer
kernels (6.18.44 is one) attach filters to TCP sockets only for processes with CAP_NET_ADMIN. For
others, the program of address_filter.py, which needs no privileges, ignores clients of this
machine that it does not know:

    0 s    A client asks for a connection, and gets no answer. /proc/net/tcp has its address, its
           port and its user.
    0.2 s  A thread sees it. If the user is this one or root, the program lets in that address and
           port. If not, a line names the user.
    1 s    The client's TCP asks again, as it does until somebody answers.

So a connection takes a second. Other machines do not wait. No other user can have the same address
and port while the client asks. If the client ends in that second, another user could ask from there
until the thread looks again; user_filter.py shuts down such a connection 0.1 s later.
"""
from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Collection

from lingpipe.cluster import user_filter
from lingpipe.cluster.user_filter import Client
from lingpipe.process import closed_pipe

_LOOK_EVERY_S = 0.2
_MOST_CLIENTS = 500   # at a time: a program has 4096 instructions at most. Others ask again.


def start(port: int, addresses: Collection[str], let_in: Callable[[Collection[Client]], None]
          ) -> None:
    """Starts the threads that let in clients of this user and root.

    Args:
      port: of this process's server.
      addresses: the IPv4 addresses at which it is reached.
      let_in: is given the clients of this machine that may connect. So far none may.
    """
    user_filter.start(port, are_held=False)
    threading.Thread(target=_look_for_ever, args=(port, addresses, let_in), name='admission',
                     daemon=True).start()


def _look_for_ever(port: int, addresses: Collection[str],
                   let_in: Callable[[Collection[Client]], None]) -> None:
    """Lets in the clients that ask, and names each other user who does, once."""
    known: set[Client] = set()
    named: set[str] = set()
    while True:
        users = user_filter.users_who_ask(port, addresses)
        own = {client for client, user in users.items() if user_filter.is_let_in(user)}
        strangers = {user_filter.name(users[client]) for client in users.keys() - own}
        for user in sorted(strangers - named):
            closed_pipe.say(f'port {port}: {user} of this machine asks for a connection; '
                            'only root and the user of this process are let in', sys.stderr)
        named |= strangers

        own = set(sorted(own)[:_MOST_CLIENTS])
        with contextlib.suppress(OSError):   # Without memory, say. It is tried again.
            if own != known:
                let_in(own)
                known = own
        time.sleep(_LOOK_EVERY_S)
