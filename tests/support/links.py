"""Who gets an answer from a machine whose links are up: questions in network namespaces."""
from __future__ import annotations

import ctypes
import socket
import subprocess
from collections.abc import Sequence

from lingpipe.tools import link_keys
from lingpipe.tools.faults.network import missing

WHY_NOT = missing() or link_keys.missing('stunnel') or link_keys.missing('openssl')
ASKS = 'exec 3<>/dev/tcp/{}; echo question >&3; timeout 10 cat <&3'
ASKS_BY_TLS = 'echo question | timeout 10 openssl s_client -quiet -connect {}'
HAS_KEY = ' -cert {0}/cert.pem -key {0}/key.pem'
ANSWER = b'answer\n'


def namespace_of(prefix: Sequence[str]) -> str:
    """Returns the path of the namespace that `Network.prefix` enters."""
    return prefix[1].removeprefix('--net=')


def enter(namespace: str) -> None:
    """Moves this process to a network namespace, which a path names."""
    with open(namespace) as file:
        assert ctypes.CDLL(None).setns(file.fileno(), 0) == 0


def answer(namespace: str, port: int) -> None:
    """Answers every question at a port on the loopback of a machine."""
    enter(namespace)
    with socket.create_server(('127.0.0.1', port)) as server:
        while True:
            connection, _ = server.accept()
            with connection:
                if connection.recv(100) == b'question\n':
                    connection.sendall(ANSWER)


def reply(prefix: Sequence[str], script: str, address: str, user: int = 0) -> bytes:
    """Returns what a user of a machine gets for a question, which a script sends to an address."""
    done = subprocess.run([*prefix, 'setpriv', f'--reuid={user}', '--clear-groups', 'bash', '-c',
                           script.format(address)], cwd='/', capture_output=True, check=False)
    return done.stdout
