"""At once: calls of several workers at the same time, since each of them waits."""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

_T = TypeVar('_T')


def at_once(call: Callable[..., _T], arguments: Sequence[Sequence[Any]],
            meanwhile: Callable[[], object] = lambda: None) -> list[_T]:
    """Returns the results of calls that are made at the same time, each in a thread.

    The error of the first call that has one is raised when all have ended. The obvious way,
    ThreadPoolExecutor, would not let a process end while a call waits for a worker that hangs.

    Args:
      call: a function.
      arguments: those of each call.
      meanwhile: what this thread does.
    """
    results: dict[int, _T] = {}
    errors: dict[int, BaseException] = {}

    def run(number: int) -> None:
        """What a thread does."""
        try:
            results[number] = call(*arguments[number])
        except BaseException as error:   # It is raised in the thread that waits.
            errors[number] = error

    threads = [threading.Thread(target=run, args=(number,), name='call of a worker', daemon=True)
               for number in range(len(arguments))]
    for thread in threads:
        thread.start()
    try:
        meanwhile()
    finally:
        for thread in threads:
            thread.join()
    for _, error in sorted(errors.items()):
        raise error
    return [results[number] for number in range(len(arguments))]
