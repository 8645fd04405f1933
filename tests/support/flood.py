"""A flood of connections to one port from a thread, which counts those that come through."""
from __future__ import annotations

import collections
import contextlib
import errno
import select
import socket
import threading
from types import TracebackType
from typing import Self

NUM_OPEN = 256   # Attempts at once; the oldest makes room for the next.


class Flood:
    """Tries to connect to one address all the time, as long as its block lasts.

    Attributes:
      num_tried: attempts.
      num_through: connections that came to be.
    """

    def __init__(self, host: str, port: int, every_s: float = 0.0005):
        self.num_tried = self.num_through = 0
        self._address, self._every_s = (host, port), every_s
        self._family = socket.AF_INET6 if ':' in host else socket.AF_INET
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        waiting: collections.deque[socket.socket] = collections.deque()
        while not self._is_over.wait(self._every_s):
            one = socket.socket(self._family)
            one.setblocking(False)
            found = one.connect_ex(self._address)   # This sends the first packet.
            self.num_tried += 1
            if found not in (0, errno.EINPROGRESS):
                one.close()
                continue
            waiting.append(one)
            if self.num_tried % 8 == 0:
                self._look(waiting)
            if len(waiting) > NUM_OPEN:
                waiting.popleft().close()
        self._look(waiting)
        for one in waiting:
            one.close()

    def _look(self, waiting: collections.deque[socket.socket]) -> None:
        """Counts and closes the connections that are no longer waiting."""
        poll = select.poll()
        by_number = {one.fileno(): one for one in waiting}
        for number in by_number:
            poll.register(number, select.POLLOUT)
        for number, _ in poll.poll(0):
            one = by_number[number]
            self.num_through += one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
            waiting.remove(one)
            with contextlib.suppress(OSError):
                # Closing with this option leaves nothing behind.
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\1\0\0\0\0\0\0\0')
            one.close()
