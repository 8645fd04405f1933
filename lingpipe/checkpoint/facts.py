"""The facts of a checkpoint: metadata.json, which is tied to the files beside it.

It holds the length of each file of variables and a hash of variables.index, so that files of two
steps, or a copy that is not complete, are not taken for a checkpoint. The obvious way, a hash of
each file, would read all data once more at every save and restore. TensorFlow's index already holds
a checksum of every tensor, which is compared with the data whenever a tensor is read.
"""
from __future__ import annotations

import hashlib
import json
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from lingpipe.checkpoint.parts import Kinds
from lingpipe.checkpoint.unreadable import NO_FILE, reading

FORMAT = 1
STEP_NAME = re.compile(r'step-(\d{8,})')   # of a checkpoint's directory
_MOST_KEYS = 3      # that an error lists; weights come first
_MOST_CHANGES = 3   # of shapes or dtypes, most often all for one reason

Metadata: TypeAlias = Mapping[str, Any]   # whatever JSON can hold


class DamagedError(Exception):
    """A checkpoint that is not whole; the message says what is wrong."""


# Writing.

def facts_of(step: int, variables: Mapping[str, tf.Variable], metadata: Metadata
             ) -> dict[str, Any]:
    """Returns what metadata.json holds, without what `write_facts` adds about the other files.

    Raises:
      ValueError: the metadata is not JSON.
    """
    try:
        json.dumps(metadata)
    except TypeError as error:
        raise ValueError(f'metadata of step {step} cannot be saved as JSON: {error}; use numbers, '
                         'texts, lists and dicts.') from error
    return {'format': FORMAT, 'step': step, 'metadata': dict(metadata),
            'variables': kinds_of(variables)}


def write_facts(path: str, facts: Metadata, keys_by_file: Mapping[str, Sequence[str]]) -> None:
    """Adds metadata.json to the files of variables in the directory `path`.

    Args:
      path: of the checkpoint.
      facts: made by `facts_of`.
      keys_by_file: which variables a file has.

    Raises:
      OSError: it cannot be written.
    """
    identities = {name: _identity(os.path.join(path, name)) for name in sorted(os.listdir(path))}
    with open(os.path.join(path, 'metadata.json'), 'w') as file:
        file.write(_text({**facts, 'files': identities, 'keys_by_file': keys_by_file}))


def _text(facts: Metadata) -> str:
    """Returns the facts as JSON, with a checksum of the JSON without it."""
    text = json.dumps(facts, sort_keys=True)
    return f'{text[:-1]}, "checksum": {zlib.crc32(text.encode())}}}'


# Reading.

def read_facts(path: str) -> dict[str, Any]:
    """Returns what `facts_of` made, for a checkpoint whose files belong together.

    Older versions of lingpipe did not write 'files'. In their checkpoints, the step alone ties
    metadata.json to its place.

    Raises:
      DamagedError: metadata.json is missing or damaged, or belongs to another step or to other
        files than those beside it.
      UnreadableError: a file is there and cannot be opened.
      ValueError: a later version wrote the checkpoint.
    """
    facts = _read_metadata(path)
    name = STEP_NAME.fullmatch(os.path.basename(os.path.normpath(path)))
    if name and facts['step'] != int(name[1]):
        raise DamagedError(f'metadata.json is of step {facts["step"]}, so the files may be of two '
                           'steps')

    for file_name, expected in facts.get('files', {}).items():
        file_path = os.path.join(path, file_name)
        try:
            with reading(file_path, left_out=path):
                identity = _identity(file_path)
        except NO_FILE as error:
            raise DamagedError(f'{file_name}, which belongs to it, cannot be read: '
                               f'{error.strerror}{_lost_text(facts, file_name)}') from error
        if identity != expected:
            raise DamagedError(f'{file_name} is not the file that was written with metadata.json, '
                               'but of another checkpoint or a part of a copy')
    return facts


def _lost_text(facts: Metadata, file_name: str) -> str:
    """Says which variables a file has, if the checkpoint knows; weights come first."""
    keys = facts.get('keys_by_file', {}).get(file_name, [])
    keys = sorted(keys, key=lambda key: not key.startswith('weights/'))
    return f'; it has {_listed(keys)}' if keys else ''


def _identity(path: str) -> dict[str, int | str]:
    """Returns what tells a file of variables from others: its length, and the index's hash."""
    with open(path, 'rb') as file:   # which also shows whether this process may read it
        identity: dict[str, int | str] = {'bytes': os.fstat(file.fileno()).st_size}
        if path.endswith('.index'):
            identity['sha256'] = hashlib.file_digest(file, 'sha256').hexdigest()
    return identity


def _read_metadata(path: str) -> dict[str, Any]:
    """Returns what metadata.json holds, without its checksum; raises as read_facts does."""
    file_path = os.path.join(path, 'metadata.json')
    try:
        with reading(file_path, left_out=path), open(file_path) as file:
            facts: dict[str, Any] = json.load(file)
        is_newer = facts['format'] > FORMAT
        checksum = facts.pop('checksum') if not is_newer else 0
        text = json.dumps(facts, sort_keys=True)
    except (*NO_FILE, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedError('metadata.json cannot be read: '
                           f'{type(error).__name__}: {error}') from error

    if is_newer:
        raise ValueError(f'{path} has format {facts["format"]}, and this lingpipe reads up to '
                         f'{FORMAT}; use a newer one.')
    if checksum != zlib.crc32(text.encode()):
        raise DamagedError('metadata.json does not have its checksum')
    return facts


# Variables.

def check_same(path: str, saved: Kinds, variables: Mapping[str, tf.Variable]) -> None:
    """Raises ValueError unless a checkpoint has the keys, shapes and dtypes of the variables."""
    here = kinds_of(variables)
    differences = []
    for what, keys in (('it lacks', here.keys() - saved.keys()),
                       ('the experiment lacks', saved.keys() - here.keys())):
        if keys:
            differences.append(f'{what} {_listed(sorted(keys, key=_weights_first))}')

    changed = sorted((key for key in here.keys() & saved.keys() if here[key] != saved[key]),
                     key=_weights_first)
    for key in changed[:_MOST_CHANGES]:
        differences.append(f'{key} is {_kind_text(saved[key])} in it and '
                           f'{_kind_text(here[key])} here')
    if len(changed) > _MOST_CHANGES:
        differences.append(f'{len(changed) - _MOST_CHANGES} more have other shapes or dtypes')
    if differences:
        raise ValueError(f'{path} does not fit: {"; ".join(differences)}. A checkpoint restores '
                         'only into the network and the learner that wrote it: set them back, '
                         'choose another logdir, or take the weights that fit by initialize_from.')


def _weights_first(key: str) -> tuple[bool, str]:
    return not key.startswith('weights/'), key


def _listed(keys: Sequence[str]) -> str:
    num_others = len(keys) - _MOST_KEYS
    others = f' and {num_others} more' if num_others > 0 else ''
    return ', '.join(keys[:_MOST_KEYS]) + others


def kinds_of(variables: Mapping[str, tf.Variable]) -> dict[str, dict[str, Any]]:
    """Returns key -> shape and dtype of each variable."""
    return {key: {'shape': v.shape.as_list(), 'dtype': v.dtype.name}
            for key, v in variables.items()}


def _kind_text(kind: Mapping[str, Any]) -> str:
    return f'{kind["dtype"]}{kind["shape"]}'
