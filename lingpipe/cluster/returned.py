"""Returned: a thread that asks whether workers that were missing answer again."""
from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from lingpipe.cluster import workers

ASK_EVERY_S = 2.


class ReturnedWorkerError(Exception):
    """A worker that was missing answers again; a run whose checkpoint is saved can take it in."""


class ReturnedWorkers:
    """Asks workers from time to time whether they answer, until it is stopped.

    A worker that serves another process counts as one that does not answer.

    Attributes:
      text: describes the first worker that answers again; '' as long as none does.
    """

    def __init__(self, addresses: Sequence[str], name: str, not_before_s: float):
        """
        Args:
          addresses: 'host:port' of the workers that are missing.
          name: the name of this process, as `workers.claim` has told it to them.
          not_before_s: when to begin, by time.monotonic().
        """
        self.text = ''
        self._addresses, self._name, self._not_before_s = addresses, name, not_before_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name='returned workers', daemon=True)
        self._thread.start()

    def wait(self, limit_s: float) -> None:
        """Waits until a worker answers again, at most for limit_s."""
        self._thread.join(limit_s)

    def stop(self) -> None:
        """Stops asking."""
        self._stopped.set()
        self._thread.join(1.)

    def _run(self) -> None:
        """What the thread does."""
        self._stopped.wait(max(0., self._not_before_s - time.monotonic()))
        while not self.text and not self._stopped.wait(ASK_EVERY_S):
            for address in self._addresses:
                if _is_free(address, self._name):
                    self.text = f'worker {address} answers again'
                    break


def _is_free(address: str, name: str) -> bool:
    """Whether a worker answers, and serves no other process than the one of that name."""
    try:
        workers.ask(address)
    except OSError:
        return False
    return workers.served_by(address) in ('', name)
