"""Held process: runs a command in a control group, which Linux holds to a number of bytes.

A limit of addresses (RLIMIT_AS, RLIMIT_DATA) would not do: glibc takes 64 MB for each thread in
advance, of which most is never touched. A control group counts the pages that are there.
"""
from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import subprocess
from collections.abc import Iterator, Sequence

# Version 1 and version 2: the folder in which groups are made, and the names of what is written
# and read there.
_ROOTS = (
    (pathlib.Path('/sys/fs/cgroup/memory'), 'memory.limit_in_bytes', 'memory.max_usage_in_bytes'),
    (pathlib.Path('/sys/fs/cgroup'), 'memory.max', 'memory.peak'))


@dataclasses.dataclass(frozen=True)
class HeldRun:
    """How a command ended.

    Attributes:
      is_killed: whether it wanted more memory than it may have.
      output: what it wrote to stdout.
      peak_bytes: the most that it held; files that it read count as far as Linux kept them.
    """
    is_killed: bool
    output: str
    peak_bytes: int


def run_held(command: Sequence[str], limit_bytes: int | None) -> HeldRun:
    """Runs a command in a group of its own.

    Args:
      command: the program and its arguments.
      limit_bytes: the most that all its processes may hold; None: whatever there is.

    Raises:
      OSError: this process may not make groups.
      ValueError: the command failed for another reason than memory; the message has its last line.
    """
    with _group(limit_bytes) as (group, peak_name):
        into_group = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        done = subprocess.run(['sh', '-c', into_group, 'sh', *command], capture_output=True,
                              text=True, check=False)
        peak_bytes = int((group / peak_name).read_text())
    is_killed = done.returncode == -9   # Linux kills; TensorFlow does not see its malloc fail.
    if done.returncode and not is_killed:
        lines = done.stderr.strip().splitlines() or ['it said nothing']
        raise ValueError(f'{" ".join(command)} ended with exit code {done.returncode}: '
                         f'{lines[-1]}')
    return HeldRun(is_killed, done.stdout, peak_bytes)


@contextlib.contextmanager
def _group(limit_bytes: int | None) -> Iterator[tuple[pathlib.Path, str]]:
    """Makes a group, and removes it when its processes have ended; gives the name of the peak."""
    root, limit_name, peak_name = next(
        (one for one in _ROOTS if (one[0] / 'cgroup.procs').exists() and (
            one[1] == 'memory.limit_in_bytes' or _has_memory(one[0]))), _ROOTS[-1])
    group = root / f'lingpipe-{os.getpid()}'
    try:
        group.mkdir()
    except OSError as error:
        raise OSError(f'{group} cannot be made ({error.strerror}), so no process can be held to a '
                      'limit; run this as root on Linux with control groups.') from error
    try:
        if limit_bytes is not None:
            (group / limit_name).write_text(str(limit_bytes))
        yield group, peak_name
    finally:
        group.rmdir()


def _has_memory(root: pathlib.Path) -> bool:
    """Whether groups below a group of version 2 count memory."""
    return 'memory' in (root / 'cgroup.subtree_control').read_text().split()
