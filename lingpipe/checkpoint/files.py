"""The files of one checkpoint: written and put on the disk, read and checked.

metadata.json is tied to the files beside it. It holds the length of each file of variables and a
hash of variables.index, so that files of two steps, or a copy that is not complete, are not taken
for a checkpoint. The obvious way, a hash of each file, would read all data once more at every save
and restore. TensorFlow's index already holds a checksum of every tensor, which is compared with the
data whenever a tensor is read.
"""
from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from lingpipe.cluster import HOME
from lingpipe.cluster.client import process_of, wait_for_ops

FORMAT = 1
STEP_NAME = re.compile(r'step-(\d{8,})')   # of a checkpoint's directory
CHUNK_BYTES = (1 << 21, 1 << 28)    # least and most: 2 ms to 0.3 s of work, and 0.8 ms for a file
_NUM_CHUNKS = 64                    # of a checkpoint, unless they get too small or too large
_VARIABLE_BYTES = 20_000            # the time that a variable takes besides its data, in bytes
_MOST_KEYS = 10                     # that an error lists

Metadata: TypeAlias = Mapping[str, Any]   # whatever JSON can hold
Kinds = Mapping[str, Mapping[str, Any]]   # key -> {'shape': [2, 3], 'dtype': 'float32'}


class DamagedError(Exception):
    """A checkpoint that cannot be read; the message says why."""


# Writing.

def facts_of(step: int, variables: Mapping[str, tf.Variable], metadata: Metadata
             ) -> dict[str, Any]:
    """Returns what metadata.json holds, without what `write` adds about the other files.

    Raises:
      ValueError: the metadata is not JSON.
    """
    try:
        json.dumps(metadata)
    except TypeError as error:
        raise ValueError(f'metadata of step {step} cannot be saved as JSON: {error}; use numbers, '
                         'texts, lists and dicts.') from error
    return {'format': FORMAT, 'step': step, 'metadata': dict(metadata),
            'variables': _kinds(variables)}


def write(path: str, facts: Metadata, read: Callable[[str], tf.Tensor],
          rest: Callable[[int], None]) -> None:
    """Makes the directory `path`, and puts all its files on the disk.

    Values are sent to this process and written a few at a time, so that it never holds all values
    of the other processes.

    Args:
      path: not there yet.
      facts: made by facts_of.
      read: returns the value of a key, on any device of any process.
      rest: called with the number of calls that are left, this one included: before each few
        values, before the files are joined, and before they are put on the disk.

    Raises:
      OSError: the files cannot be written.
      tf.errors.OpError: a value cannot be read.
    """
    os.makedirs(path)
    chunks = list(_chunks(facts['variables']))
    prefixes = [os.path.join(path, 'parts', str(i)) for i in range(len(chunks))]
    with tf.device(HOME):
        own_process = process_of(tf.constant(0))
        for i, (keys, prefix) in enumerate(zip(chunks, prefixes, strict=True)):
            rest(len(chunks) - i + 2)
            tensors = []
            for value in map(read, keys):   # not within _writing: what fails here is not the disk
                is_here = process_of(value) == own_process
                tensors.append(value if is_here else tf.identity(value))
            _write_part(prefix, keys, tensors)

        rest(2)
        with _writing():
            tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes,
                                          destination_prefix=os.path.join(path, 'variables'),
                                          delete_old_dirs=True)
    rest(1)
    identities = {name: _identity(os.path.join(path, name)) for name in sorted(os.listdir(path))}
    with open(os.path.join(path, 'metadata.json'), 'w') as file:
        file.write(_text({**facts, 'files': identities}))
    for name in [*os.listdir(path), '.']:
        sync(os.path.join(path, name))


def _chunks(kinds: Kinds) -> Iterator[list[str]]:
    """Yields all keys, in lists that take about equally long to write."""
    costs = {key: math.prod(kind['shape']) * tf.as_dtype(kind['dtype']).size + _VARIABLE_BYTES
             for key, kind in kinds.items()}
    least, most = CHUNK_BYTES
    limit = min(max(sum(costs.values()) / _NUM_CHUNKS, least), most)

    keys: list[str] = []
    cost = 0
    for key in kinds:
        keys.append(key)
        cost += costs[key]
        if cost >= limit:
            yield keys
            keys = []
            cost = 0
    if keys:
        yield keys


def _write_part(prefix: str, keys: Sequence[str], tensors: Sequence[tf.Tensor]) -> None:
    with _writing():
        # With constants for the names, the call takes half as long.
        tf.raw_ops.SaveV2(prefix=tf.constant(prefix),
                          tensor_names=tf.constant([_saved_name(key) for key in keys]),
                          shape_and_slices=tf.constant([''] * len(keys)), tensors=tensors)


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Turns the error that TensorFlow raises when it cannot write into an OSError."""
    try:
        yield
    except tf.errors.OpError as error:
        raise OSError(sentence(error)) from error


def sync(path: str) -> None:
    """Puts a file or directory on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Reading.

def read_facts(path: str) -> dict[str, Any]:
    """Returns what `facts_of` made, for a checkpoint whose files belong together.

    Older versions of lingpipe did not write 'files'. In their checkpoints, the step alone ties
    metadata.json to its place.

    Raises:
      DamagedError: metadata.json is missing or damaged, or belongs to another step or to other
        files than those beside it.
      ValueError: a later version wrote the checkpoint.
    """
    facts = _read_metadata(path)
    name = STEP_NAME.fullmatch(os.path.basename(os.path.normpath(path)))
    if name and facts['step'] != int(name[1]):
        raise DamagedError(f'metadata.json is of step {facts["step"]}, so the files may be of two '
                           'steps')

    for file_name, expected in facts.get('files', {}).items():
        try:
            identity = _identity(os.path.join(path, file_name))
        except OSError as error:
            raise DamagedError(f'{file_name}, which belongs to it, cannot be read: '
                               f'{error.strerror}') from error
        if identity != expected:
            raise DamagedError(f'{file_name} is not the file that was written with metadata.json, '
                               'but of another checkpoint or a part of a copy')
    return facts


def _identity(path: str) -> dict[str, int | str]:
    """Returns what tells a file of variables from others: its length, and the index's hash."""
    identity: dict[str, int | str] = {'bytes': os.path.getsize(path)}
    if path.endswith('.index'):
        with open(path, 'rb') as file:
            identity['sha256'] = hashlib.file_digest(file, 'sha256').hexdigest()
    return identity


def _read_metadata(path: str) -> dict[str, Any]:
    """Returns what metadata.json holds, without its checksum; raises as read_facts does."""
    try:
        with open(os.path.join(path, 'metadata.json')) as file:
            facts: dict[str, Any] = json.load(file)
        is_newer = facts['format'] > FORMAT
        checksum = facts.pop('checksum') if not is_newer else 0
        text = json.dumps(facts, sort_keys=True)
    except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedError('metadata.json cannot be read: '
                           f'{type(error).__name__}: {error}') from error

    if is_newer:
        raise ValueError(f'{path} has format {facts["format"]}, and this lingpipe reads up to '
                         f'{FORMAT}; use a newer one.')
    if checksum != zlib.crc32(text.encode()):
        raise DamagedError('metadata.json does not have its checksum')
    return facts


def tensors(path: str, keys: Iterable[str]) -> Iterator[np.ndarray]:
    """Yields the tensors saved under the keys, so that a network is never in memory twice.

    Raises:
      DamagedError: a tensor cannot be read.
    """
    reader: Any = None
    for key in keys:
        try:
            reader = reader or tf.train.load_checkpoint(os.path.join(path, 'variables'))
            value = reader.get_tensor(_saved_name(key))
        except Exception as error:   # IndexError, RuntimeError, ValueError or tf.errors.OpError
            raise DamagedError(sentence(error)) from error
        yield value


def assign(path: str, pairs: Iterable[tuple[tf.Variable, str]]) -> None:
    """Assigns to each variable the tensor saved under a key.

    Raises:
      DamagedError: a tensor cannot be read. The variables before it are assigned.
    """
    pairs = list(pairs)
    values = tensors(path, [key for _, key in pairs])
    for (variable, _), value in zip(pairs, values, strict=True):
        with tf.device(variable.device):
            variable.assign(tf.cast(value, variable.dtype))
    wait_for_ops(variable.read_value() for variable, _ in pairs)


# Variables and texts.

def check_same(path: str, saved: Kinds, variables: Mapping[str, tf.Variable]) -> None:
    """Raises ValueError unless a checkpoint has the keys, shapes and dtypes of the variables."""
    here = _kinds(variables)
    differences = []
    for what, keys in (('it lacks', here.keys() - saved.keys()),
                       ('the experiment lacks', saved.keys() - here.keys())):
        if keys:
            differences.append(f'{what} {_listed(sorted(keys))}')

    common = here.keys() & saved.keys()
    for key in sorted(common, key=lambda key: (not key.startswith('weights/'), key)):
        if here[key] != saved[key]:
            differences.append(f'{key} is {_kind_text(saved[key])} in it and '
                               f'{_kind_text(here[key])} here')
    if differences:
        raise ValueError(f'{path} does not fit: {"; ".join(differences)}. A checkpoint restores '
                         'only into the network and the learner that wrote it: set them back, '
                         'choose another logdir, or take the weights that fit by init rules.')


def _listed(keys: Sequence[str]) -> str:
    num_others = len(keys) - _MOST_KEYS
    others = f' and {num_others} more' if num_others > 0 else ''
    return ', '.join(keys[:_MOST_KEYS]) + others


def _kinds(variables: Mapping[str, tf.Variable]) -> dict[str, dict[str, Any]]:
    return {key: {'shape': v.shape.as_list(), 'dtype': v.dtype.name}
            for key, v in variables.items()}


def _kind_text(kind: Mapping[str, Any]) -> str:
    return f'{kind["dtype"]}{kind["shape"]}'


def _saved_name(key: str) -> str:
    """Returns a tensor's name in the file.

    It is the name that tf.train.Checkpoint(variables={key: ...}) gives it.
    """
    escaped = key.replace('.', '..').replace('/', '.S')
    return f'variables/{escaped}/.ATTRIBUTES/VARIABLE_VALUE'


def _text(facts: Metadata) -> str:
    """Returns the facts as JSON, with a checksum of the JSON without it."""
    text = json.dumps(facts, sort_keys=True)
    return f'{text[:-1]}, "checksum": {zlib.crc32(text.encode())}}}'


def sentence(error: Exception) -> str:
    """Returns the first line of an error, TensorFlow's or another, without the names of ops."""
    text = str(getattr(error, 'message', '') or error).strip().split('\n')[0]
    text = re.sub(r'^\{\{.*?\}\} *| *\[Op:\w*\].*$', '', text)
    return text.rstrip('.') or type(error).__name__
