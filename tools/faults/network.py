"""Network: namespaces of Linux with one address each, and this process as the switch between them.

The obvious way is a bridge with tc's netem, but many kernels are built without netem, and tc has
nothing else that loses packets. So each namespace gets a TUN device, whose packets this process
reads and hands on, late or never.
"""
from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import subprocess
import threading
import time

_DEVICE = '/dev/net/tun'
_TUNSETIFF = 0x400454ca       # linux/if_tun.h
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000    # linux/sched.h
_SUBNET = '198.18.77'         # of a range that is kept for such tests (RFC 2544)
_MTU = 9000


def missing() -> str:
    """Returns why there can be no network here, or ''."""
    if os.geteuid() != 0:
        return 'only root can make network namespaces'
    if not os.path.exists(_DEVICE):
        return f'{_DEVICE} is missing'
    try:
        subprocess.run(['ip', 'netns', 'list'], capture_output=True, check=True)
        subprocess.run(['nsenter', '--version'], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 'the commands ip and nsenter are missing (Debian: iproute2, util-linux)'
    return ''


@dataclasses.dataclass
class Link:
    """What becomes of the packets that a namespace sends or gets.

    Attributes:
      is_cut: whether all are lost.
      delay_s: how much later they come.
      loss: the share that is lost.
    """
    is_cut: bool = False
    delay_s: float = 0.
    loss: float = 0.


class Network:
    """Some namespaces with a link each to one switch.

    Attributes:
      links: what becomes of packets, by namespace; it may be changed at any time.
    """

    def __init__(self, num_namespaces: int, seed: int):
        """
        Args:
          num_namespaces: how many.
          seed: draws the packets that are lost.

        Raises:
          OSError: a namespace cannot be made.
        """
        self.links = [Link() for _ in range(num_namespaces)]
        self._names = [f'lingpipe-{os.getpid()}-{i}' for i in range(num_namespaces)]
        self._chance = random.Random(seed)
        self._tuns: list[int] = []
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name='switch', daemon=True)
        try:
            for i, name in enumerate(self._names):
                _ip('netns', 'add', name)
                self._tuns.append(_open_tun(name))
                _ip('-n', name, 'address', 'add', f'{self.host(i)}/24', 'dev', 'link')
                _ip('-n', name, 'link', 'set', 'dev', 'link', 'mtu', str(_MTU), 'up')
                _ip('-n', name, 'link', 'set', 'dev', 'lo', 'up')
        except OSError:
            self.close()
            raise
        self._thread.start()

    def host(self, i: int) -> str:
        """Returns the address of a namespace."""
        return f'{_SUBNET}.{i + 1}'

    def prefix(self, i: int) -> tuple[str, ...]:
        """Returns what stands before a command that runs in a namespace."""
        return ('nsenter', f'--net=/run/netns/{self._names[i]}')

    def close(self) -> None:
        """Ends the switch, and removes the namespaces."""
        self._is_closed = True
        if self._thread.ident is not None:   # It may not use numbers that other files get next.
            self._thread.join()
        for tun in self._tuns:
            os.close(tun)
        for name in self._names:
            with contextlib.suppress(OSError):
                _ip('netns', 'delete', name)

    def _run(self) -> None:
        """What the switch does."""
        waiting: list[tuple[float, int, int, bytes]] = []   # (due_s, number, tun, packet)
        numbers = itertools.count()
        while not self._is_closed:
            until_next_s = waiting[0][0] - time.monotonic() if waiting else 0.5
            with contextlib.suppress(OSError, ValueError):   # ValueError: a tun that is closed
                readable, _, _ = select.select(self._tuns, [], [], max(0., min(0.5, until_next_s)))
                for tun in readable:
                    packet = os.read(tun, 1 << 16)
                    found = self._passed_on(self._tuns.index(tun), packet)
                    if found is not None:
                        to, delay_s = found
                        due_s = time.monotonic() + delay_s
                        heapq.heappush(waiting, (due_s, next(numbers), to, packet))
                while waiting and waiting[0][0] <= time.monotonic():
                    _, _, to, packet = heapq.heappop(waiting)
                    os.write(to, packet)

    def _passed_on(self, sender: int, packet: bytes) -> tuple[int, float] | None:
        """Returns where a packet goes and how much later, or None if it is lost."""
        is_ipv4 = packet[0] >> 4 == 4
        receiver = packet[19] - 1   # the last byte of its destination's address
        if not is_ipv4 or not 0 <= receiver < len(self._tuns):
            return None
        links = (self.links[sender], self.links[receiver])
        if any(link.is_cut or self._chance.random() < link.loss for link in links):
            return None
        return self._tuns[receiver], sum(link.delay_s for link in links)


def _open_tun(namespace: str) -> int:
    """Opens a new TUN device 'link' in a namespace, without leaving this process's own for long.

    A thread of its own enters the namespace, and ends there.
    """
    opened: list[int | OSError] = []

    def enter_and_open() -> None:
        """What the thread does."""
        try:
            with open(f'/run/netns/{namespace}') as file:
                if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            tun = os.open(_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.ioctl(tun, _TUNSETIFF, struct.pack('16sH', b'link', _IFF_TUN | _IFF_NO_PI))
            opened.append(tun)
        except OSError as error:
            opened.append(error)

    thread = threading.Thread(target=enter_and_open)
    thread.start()
    thread.join()
    if isinstance(opened[0], OSError):
        raise opened[0]
    return opened[0]


def _ip(*words: str) -> None:
    """Runs the command ip; raises OSError if it fails."""
    done = subprocess.run(['ip', *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f'ip {" ".join(words)}: {done.stderr.strip()}; leave cut, delay and lose out '
                      'of --kinds.')
