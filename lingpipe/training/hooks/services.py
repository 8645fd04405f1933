"""Services: packages that need not be installed, and the ids of runs that they know."""
from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from lingpipe.checkpoint import side_files


def imported(package: str, hook: str) -> Any:
    """A package that only a hook needs.

    Raises:
      ModuleNotFoundError: it is not installed.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ModuleNotFoundError(f'the hook {hook} needs the package {package}, which is not '
                                  f'installed; run pip install {package}, or leave the hook out.',
                                  name=package) from error


def kept_id(logdir: str, name: str, make: Callable[[], str]) -> str:
    """The id that a file of the logdir keeps; if there is none, one that is made and kept."""
    path = os.path.join(logdir, name)
    try:
        with open(path, encoding='utf-8') as file:
            if text := file.read().strip():
                return text
    except FileNotFoundError:
        pass
    text = make()
    side_files.write_text(path, f'{text}\n')
    return text
