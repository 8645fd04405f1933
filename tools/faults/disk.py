"""Faults of the disk: the logdir is on a small file system in memory, which is filled."""
from __future__ import annotations

import contextlib
import os
import pathlib
import random
import subprocess
from collections.abc import Iterator

from lingpipe.tools.faults.disturbed_run import DisturbedRun

_MEGABYTES = 32
_FILLING = 'filling'   # a file beside the logdir


def missing() -> str:
    """Returns why no file system can be mounted here, or ''."""
    return '' if os.geteuid() == 0 else 'only root can mount a small file system'


@contextlib.contextmanager
def small(folder: pathlib.Path) -> Iterator[None]:
    """Mounts a small file system at the folder, for as long as the block runs.

    Raises:
      OSError: it cannot be mounted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ['mount', '-t', 'tmpfs', '-o', f'size={_MEGABYTES}m', 'lingpipe', str(folder)],
        capture_output=True, text=True, check=False)
    if mounted.returncode:
        raise OSError(f'no file system can be mounted at {folder}: {mounted.stderr.strip()}; '
                      'leave full_disk out of --kinds.')
    try:
        yield
    finally:
        subprocess.run(['umount', '--lazy', str(folder)], check=False)


def full_disk(run: DisturbedRun, chance: random.Random) -> str:
    """Fills the disk for some seconds, perhaps with a start of the trainer meanwhile."""
    is_at_start = chance.random() < 0.3
    seconds = chance.uniform(2., 8.)
    path = run.logdir.parent / _FILLING
    if is_at_start:
        run.kill_trainer()
    try:
        with contextlib.suppress(OSError), open(path, 'wb', buffering=0) as file:
            while True:
                file.write(bytes(4096))
        if is_at_start:
            run.start_trainer()
        with run.expecting('No space left|has .* MB free', lambda: path.unlink(missing_ok=True)):
            run.wait(seconds)
    finally:
        path.unlink(missing_ok=True)
    return f'for {seconds:.1f} s{", from before a start" if is_at_start else ""}'
