"""Replacement: a file or a directory is written beside its place, and gets its name when complete.

So a full disk, a kill or an error leaves what was there before. What a killed export leaves beside
it has a name that nobody else gives, and the next export removes it.
"""
from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator

from lingpipe.checkpoint import files, side_files

# In a directory that an export has made, so that another export may replace it.
DESCRIPTION = 'lingpipe.json'

_NEW, _OLD = '.lingpipe-new', '.lingpipe-old'   # PATH.new may be the user's own.


def check_writable(path: str, remedy: str) -> None:
    """Raises OSError if nothing could be written at a path, before hours of work for it.

    Args:
      path: of a file or of a directory.
      remedy: ends the sentence of the error: 'correct --export_path'.
    """
    folder = os.path.dirname(os.path.abspath(path))
    try:
        os.makedirs(folder, exist_ok=True)
        trial = side_files.free_name(f'{path}.new')
        with open(trial, 'xb'):
            pass
        os.remove(trial)
    except OSError as error:
        raise OSError(f'{path} cannot be written: {error.strerror or error}; {remedy}.') from error


@contextlib.contextmanager
def replaced_file(path: str, remedy: str) -> Iterator[str]:
    """A context in which a file is written under another name, which it yields.

    Raises:
      OSError: the file cannot be written. What was there before still is.
    """
    if os.path.isdir(path):
        raise OSError(f'{path} cannot be written: it is a directory; {remedy}.')
    is_special = os.path.exists(path) and not os.path.isfile(path)   # such as /dev/stdout
    target = path if is_special else os.path.realpath(path)   # A link stays.
    root, suffix = os.path.splitext(target)
    new = f'{root}{_NEW}{suffix}'   # Some libraries go by the suffix.
    with _told(path, remedy):
        try:
            yield new
            if is_special:
                with open(new, 'rb') as source, open(target, 'wb') as special:
                    shutil.copyfileobj(source, special)
            else:
                _sync(new)
                os.replace(new, target)
        finally:
            with contextlib.suppress(OSError):
                os.remove(new)


@contextlib.contextmanager
def replaced_directory(path: str, remedy: str) -> Iterator[str]:
    """A context in which a directory is filled under another name, which it yields.

    Raises:
      OSError: it cannot be written, or what is there is not an earlier export. What was there
        before still is.
    """
    check_replaceable(path, remedy)
    target = os.path.realpath(path)   # What a link leads to is replaced, and not the link.
    new, old = f'{target}{_NEW}', f'{target}{_OLD}'
    with _told(path, remedy):
        try:
            shutil.rmtree(new, ignore_errors=True)
            os.makedirs(new)
            yield new
            if os.path.isdir(target):
                shutil.rmtree(old, ignore_errors=True)
                os.replace(target, old)
            os.replace(new, target)
            files.sync(os.path.dirname(target))
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(new, ignore_errors=True)


def check_replaceable(path: str, remedy: str) -> None:
    """Raises OSError if a directory to be written is something that an export must not replace."""
    is_free = not os.path.lexists(path) or os.path.isdir(path) and not os.listdir(path)
    if not is_free and not os.path.isfile(os.path.join(path, DESCRIPTION)):
        raise OSError(f'{path} cannot be written: it exists and is not an earlier export; '
                      f'{remedy}, or move it away.')


@contextlib.contextmanager
def _told(path: str, remedy: str) -> Iterator[None]:
    """A context in which an OSError says which path it is about, and what to do."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(f'{path} cannot be written: {error.strerror or error}; {remedy}.') from error


def _sync(path: str) -> None:
    with open(path, 'rb') as file:
        os.fsync(file.fileno())
