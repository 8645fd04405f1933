"""Plain user: root, whom no permission binds, is another user within a `with` block."""
from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_NOBODY = 65534


@contextlib.contextmanager
def plain_user() -> Iterator[Path]:
    """A context in which permissions bind this process; yields an empty folder that is its own.

    The folder of a test is not open to other users than the one who runs the tests.
    """
    folder = Path(tempfile.mkdtemp())
    is_root = os.geteuid() == 0
    try:
        if is_root:
            os.chown(folder, _NOBODY, -1)
            os.seteuid(_NOBODY)
        yield folder
    finally:
        if is_root:
            os.seteuid(0)
        for path in [folder, *folder.rglob('*')]:
            if path.is_dir():
                path.chmod(0o700)
        shutil.rmtree(folder)
