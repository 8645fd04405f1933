"""The files of one checkpoint: written and put on the disk, read and checked.

metadata.json is tied to the files beside it, so that a part of a copy, or files of two steps, are not taken for a checkpoint: it
holds the length of each file of variables and a hash of variables.index. TensorFlow's index holds a checksum of every tensor, which is
compared with the data whenever a tensor is read. So no byte of data is read twice, neither to write a checkpoint nor to check it.
"""
from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.cluster import HOME
from lingpipe.cluster.client import process_of, wait_for_ops

FORMAT = 1
STEP_NAME = re.compile(r'step-(\d{8,})')   # of a checkpoint's directory
_NUM_CHUNKS = 64                    # of a checkpoint, unless they get too small or too large
_CHUNK_BYTES = (1 << 21, 1 << 28)   # 2 ms to 0.3 s of work; a file takes 0.8 ms besides
_VARIABLE_BYTES = 20_000            # take as long to write as a variable does besides its bytes


class DamagedError(Exception):
    """A checkpoint that cannot be read; the message says why."""


def facts_of(step: int, variables: Mapping[str, tf.Variable], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What metadata.json holds, without what `write` adds about the other files.

    Raises:
      ValueError: metadata that is not JSON.
    """
    try:
        json.dumps(metadata)
    except TypeError as error:
        raise ValueError(f'metadata of step {step} cannot be saved as JSON: {error}; use numbers, texts, lists and '
                         'dicts.') from error
    return {'format': FORMAT, 'step': step, 'metadata': dict(metadata), 'variables': _kinds(variables)}


def write(path: str, facts: Mapping[str, Any], read: Callable[[str], tf.Tensor], rest: Callable[[int], Any]) -> None:
    """Makes the directory `path` with all files in it on the disk.

    Args:
      path: not there yet.
      facts: of facts_of.
      read: gives the value of a key, on any device of any process. It is sent here and written with a few others at a time, so that this
        process never holds all that the others have.
      rest: called before each of these times, and before the files are joined and put on the disk, with how many are left.

    Raises:
      OSError: it cannot be written.
      tf.errors.OpError: a value cannot be read.
    """
    os.makedirs(path)
    prefixes, chunks = [], list(_chunks(facts['variables']))
    with tf.device(HOME):
        own = process_of(tf.constant(0))
        for i, keys in enumerate(chunks):
            rest(len(chunks) - i + 2)
            tensors = []
            for value in map(read, keys):   # not within _writing: what fails here is no disk
                tensors.append(value if process_of(value) == own else tf.identity(value))
            prefixes.append(os.path.join(path, 'parts', str(i)))
            with _writing():
                tf.raw_ops.SaveV2(prefix=tf.constant(prefixes[-1]), tensor_names=tf.constant([_saved_name(key) for key in keys]),
                                  shape_and_slices=tf.constant([''] * len(keys)), tensors=tensors)   # all tensors: the call takes half
        rest(2)
        with _writing():
            tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=os.path.join(path, 'variables'),
                                          delete_old_dirs=True)
    rest(1)
    identities = {name: _identity(os.path.join(path, name)) for name in sorted(os.listdir(path))}
    with open(os.path.join(path, 'metadata.json'), 'w') as file:
        file.write(_text({**facts, 'files': identities}))
    for name in [*os.listdir(path), '.']:
        sync(os.path.join(path, name))


def _chunks(kinds: Mapping[str, Any]) -> Iterator[list[str]]:
    """All keys, in lists that take about as long to write as each other."""
    costs = {key: math.prod(kind['shape']) * tf.as_dtype(kind['dtype']).size + _VARIABLE_BYTES for key, kind in kinds.items()}
    limit = min(max(sum(costs.values()) / _NUM_CHUNKS, _CHUNK_BYTES[0]), _CHUNK_BYTES[1])
    keys: list[str] = []
    cost = 0
    for key in kinds:
        keys.append(key)
        cost += costs[key]
        if cost >= limit:
            yield keys
            keys, cost = [], 0
    if keys:
        yield keys


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Makes an OSError of what TensorFlow raises when it cannot write."""
    try:
        yield
    except tf.errors.OpError as error:
        raise OSError(sentence(error)) from error


def read_facts(path: str) -> dict[str, Any]:
    """What `facts_of` made, of a checkpoint whose files belong together.

    Those of a lingpipe that did not write 'files' yet are accepted without: there the step alone ties metadata.json to its place.

    Raises:
      DamagedError: metadata.json is not there or not whole, or not of this step, or not of the files beside it.
      ValueError: it was written by a later version.
    """
    facts = _read_metadata(path)
    name = STEP_NAME.fullmatch(os.path.basename(os.path.normpath(path)))
    if name and facts['step'] != int(name[1]):
        raise DamagedError(f'metadata.json is of step {facts["step"]}, so the files may be of two steps')
    for file_name, expected in facts.get('files', {}).items():
        try:
            found = _identity(os.path.join(path, file_name))
        except OSError as error:
            raise DamagedError(f'{file_name}, which belongs to it, cannot be read: {error.strerror}') from error
        if found != expected:
            raise DamagedError(f'{file_name} is not the file that was written with metadata.json, but of another checkpoint or '
                               'a part of a copy')
    return facts


def _identity(path: str) -> dict[str, Any]:
    """What tells a file of variables from others: its length, and of the index a hash."""
    if not path.endswith('.index'):
        return {'bytes': os.path.getsize(path)}
    with open(path, 'rb') as file:
        return {'bytes': os.path.getsize(path), 'sha256': hashlib.file_digest(file, 'sha256').hexdigest()}


def _read_metadata(path: str) -> dict[str, Any]:
    """What metadata.json holds, without its checksum; raises as read_facts does."""
    try:
        with open(os.path.join(path, 'metadata.json')) as file:
            facts = json.load(file)
        if facts['format'] > FORMAT:
            raise ValueError
        is_whole = facts.pop('checksum') == zlib.crc32(json.dumps(facts, sort_keys=True).encode())
    except (OSError, KeyError, TypeError, RecursionError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DamagedError(f'metadata.json cannot be read: {type(error).__name__}: {error}') from error
    except ValueError:
        raise ValueError(f'{path} has format {facts["format"]}, and this lingpipe reads up to {FORMAT}; use a newer one.') from None
    if not is_whole:
        raise DamagedError('metadata.json does not have its checksum')
    return facts   # type: ignore[no-any-return]


def check_same(path: str, saved: Mapping[str, Any], variables: Mapping[str, tf.Variable]) -> None:
    """Raises ValueError unless the same keys are there, of the same shapes and dtypes."""
    here = _kinds(variables)
    differences = [f'{what} {", ".join(keys[:10])}{f" and {len(keys) - 10} more" if len(keys) > 10 else ""}'
                   for what, keys in (('it lacks', sorted(here.keys() - saved.keys())),
                                      ('the experiment lacks', sorted(saved.keys() - here.keys()))) if keys]
    differences += [f'{key} is {saved[key]["dtype"]}{saved[key]["shape"]} in it and {here[key]["dtype"]}{here[key]["shape"]} here'
                    for key in sorted(here.keys() & saved.keys(), key=lambda key: (not key.startswith('weights/'), key))
                    if here[key] != saved[key]]
    if differences:
        raise ValueError(f'{path} does not fit: {"; ".join(differences)}. A checkpoint restores only into the network and the learner '
                         'that wrote it: set them back, choose another logdir, or take the weights that fit by init rules.')


def tensors(path: str, keys: Iterable[str]) -> Iterator[np.ndarray]:
    """The tensors saved under the keys, one after the other: never two copies of a whole network.

    Raises:
      DamagedError: one cannot be read.
    """
    reader: Any = None
    for key in keys:
        try:
            reader = reader or tf.train.load_checkpoint(os.path.join(path, 'variables'))
            value = reader.get_tensor(_saved_name(key))
        except Exception as error:   # IndexError, RuntimeError, ValueError, tf.errors.OpError: whatever the reader meets
            raise DamagedError(sentence(error)) from error
        yield value


def assign(path: str, pairs: Iterable[tuple[tf.Variable, str]]) -> None:
    """Assigns to each variable the tensor saved under a key.

    Raises:
      DamagedError: a tensor cannot be read; those before it are assigned.
    """
    pairs = list(pairs)
    for (variable, _), value in zip(pairs, tensors(path, [key for _, key in pairs]), strict=True):
        with tf.device(variable.device):
            variable.assign(tf.cast(value, variable.dtype))
    wait_for_ops(variable.read_value() for variable, _ in pairs)


def _saved_name(key: str) -> str:
    """A tensor's name in the file: the one that tf.train.Checkpoint(variables={key: ...}) gives it."""
    return f'variables/{key.replace(".", "..").replace("/", ".S")}/.ATTRIBUTES/VARIABLE_VALUE'


def _kinds(variables: Mapping[str, tf.Variable]) -> dict[str, dict[str, Any]]:
    return {key: {'shape': v.shape.as_list(), 'dtype': v.dtype.name} for key, v in variables.items()}


def _text(facts: Mapping[str, Any]) -> str:
    """JSON of the facts with the checksum of that without it."""
    text = json.dumps(facts, sort_keys=True)
    return f'{text[:-1]}, "checksum": {zlib.crc32(text.encode())}}}'


def sync(path: str) -> None:
    """Puts a file or directory on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sentence(error: Exception) -> str:
    """The first line of an error, TensorFlow's or another, without the names of ops."""
    text = str(getattr(error, 'message', '') or error).strip().split('\n')[0]
    return re.sub(r'^\{\{.*?\}\} *| *\[Op:\w*\].*$', '', text).rstrip('.') or type(error).__name__
