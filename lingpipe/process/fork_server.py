"""The fork server of multiprocessing, of which a process has one: who uses it shares its imports.

`set_forkserver_preload` replaces what others have set, so only the last of several callers would
have processes that begin with its modules.
"""
from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext

_context = multiprocessing.get_context('forkserver')
_modules: dict[str, None] = {}   # in the order in which they are imported


def context(*modules: str) -> ForkServerContext:
    """Returns the context whose processes are forks of one that has imported the modules.

    Modules that are named after the first process has started are imported by each process anew.
    """
    _modules.update(dict.fromkeys(modules))
    _context.set_forkserver_preload(list(_modules))
    return _context
