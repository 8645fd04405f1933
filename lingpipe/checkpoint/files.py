"""The files of one checkpoint: variables are written and put on the disk, and read."""
from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from lingpipe.checkpoint import parts
from lingpipe.checkpoint.facts import DamagedError, Metadata, kinds_of, write_facts
from lingpipe.checkpoint.pacing import Pacing
from lingpipe.checkpoint.parts import Kinds, Part
from lingpipe.checkpoint.unreadable import NO_FILE, check_files, reading
from lingpipe.checkpoint.worker_files import WorkerError, WorkerFiles, hosts_of
from lingpipe.cluster import HOME
from lingpipe.cluster.at_once import at_once
from lingpipe.cluster.client import (
    device_of,
    host_of,
    process_of,
    wait_for_assignments,
)

# Writing.

@dataclasses.dataclass(frozen=True)
class Values:
    """The values of variables at one moment.

    Attributes:
      read: returns the value of a key, on any device of any process.
      hosts: key -> CPU of its worker, of the values that are in the memory of workers.
    """
    read: Callable[[str], tf.Tensor]
    hosts: Mapping[str, str]


def write(path: str, facts: Metadata, values: Values, pacing: Pacing,
          workers: WorkerFiles) -> None:
    """Makes the directory `path`, and puts all its files on the disk.

    Values are written a few at a time. Workers that share the directory write their own, all of
    them at once. Other values are sent to this process, which thus never holds all of them.

    Args:
      path: not there yet.
      facts: made by `facts_of`.
      values: of the variables.
      pacing: rests before each few values, before the files are joined, and before they are put on
        the disk.
      workers: write their own values.

    Raises:
      OSError: the files cannot be written.
      tf.errors.OpError: a value cannot be read.
    """
    os.makedirs(path)
    hosts = workers.hosts_that_write(os.path.abspath(path), values.hosts)
    rounds = parts.rounds(facts['variables'], hosts)
    # A worker whose trainer was killed may still be writing; so names are never used twice.
    folder = os.path.join(os.path.abspath(path), 'parts')
    prefix = os.path.join(folder, uuid.uuid4().hex)
    written: list[Part] = []
    for i, one_round in enumerate(rounds):
        pacing.rest(len(rounds) - i + 2)
        os.makedirs(folder, exist_ok=True)
        prefixes = [f'{prefix}-{len(written) + j}' for j in range(len(one_round))]
        _write_round(dict(zip(prefixes, one_round, strict=True)), values.read, pacing, workers)
        written += one_round

    pacing.rest(2)
    if written:   # A network may have no variables.
        with tf.device(HOME), _writing():
            tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=[f'{prefix}-{i}' for i in range(len(written))],
                destination_prefix=os.path.join(path, 'variables'), delete_old_dirs=False)
    shutil.rmtree(folder, ignore_errors=True)
    pacing.rest(1)
    _finish(path, facts, written)


def _write_round(part_by_prefix: Mapping[str, Part], read: Callable[[str], tf.Tensor],
                 pacing: Pacing, workers: WorkerFiles) -> None:
    """Writes some values, those of each process to the files of one prefix."""
    here = [(prefix, part.keys) for prefix, part in part_by_prefix.items() if not part.host]
    on_workers = []
    for prefix, part in part_by_prefix.items():
        if part.host:
            with tf.device(part.host):   # The values of a GPU are sent to the CPU beside it.
                values = map(read, part.keys)
                tensors = [value if host_of(device_of(value)) == device_of(value)
                           else tf.identity(value) for value in values]
            on_workers.append((part.host, prefix, list(map(_saved_name, part.keys)), tensors))

    def write_here() -> None:
        """Writes what this process writes."""
        for prefix, keys in here:
            _write_part(prefix, keys, read)

    start_s = time.monotonic()
    try:
        at_once(workers.save, on_workers, meanwhile=write_here)
    except WorkerError as error:
        raise OSError(str(error)) from error
    if on_workers:
        pacing.add_work(time.monotonic() - start_s)


def _finish(path: str, facts: Metadata, written: Sequence[Part]) -> None:
    """Adds metadata.json to the files of variables, and puts all of them on the disk."""
    keys_by_file = {f'variables.data-{i:05d}-of-{len(written):05d}': list(part.keys)
                    for i, part in enumerate(written)}
    write_facts(path, facts, keys_by_file)
    for name in [*os.listdir(path), '.']:
        sync(os.path.join(path, name))


def _write_part(prefix: str, keys: Sequence[str], read: Callable[[str], tf.Tensor]) -> None:
    """Writes values to the files PREFIX.* from this process, to which they are sent if need be."""
    with tf.device(HOME):
        own_process = process_of(tf.constant(0))
        tensors = []
        for value in map(read, keys):   # not within _writing: what fails here is not the disk
            is_here = process_of(value) == own_process
            tensors.append(value if is_here else tf.identity(value))
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

def tensors(path: str, keys: Iterable[str]) -> Iterator[np.ndarray]:
    """Yields the tensors saved under the keys, so that a network is never in memory twice.

    Raises:
      DamagedError: a tensor is damaged or missing.
      UnreadableError: the system does not let this process read a file.
    """
    reader: Any = None
    with contextlib.ExitStack() as opened:
        for key in keys:
            try:
                reader = reader or tf.train.load_checkpoint(os.path.join(
                    opened.enter_context(_name_without_pattern(path)), 'variables'))
                value = reader.get_tensor(_saved_name(key))
            except Exception as error:  # OSError, IndexError, RuntimeError, ValueError, or TF's own
                if 'REPLACED BY KeyboardInterrupt' in str(error):   # Ctrl-C came within TensorFlow.
                    raise KeyboardInterrupt from error
                check_files(path)
                raise DamagedError(sentence(error)) from error
            yield value


@contextlib.contextmanager
def _name_without_pattern(path: str) -> Iterator[str]:
    """A name of a directory, whose files TensorFlow finds by it.

    It looks for files whose names match what it is told, and [ and \\ do not match themselves.
    """
    if not {'[', '\\'} & set(path):
        yield path
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f'/proc/self/fd/{descriptor}'
    finally:
        os.close(descriptor)


def assign(path: str, kinds: Kinds, pairs: Iterable[tuple[tf.Variable, str]],
           workers: WorkerFiles) -> None:
    """Assigns to each variable the tensor saved under a key.

    Args:
      path: a checkpoint.
      kinds: of the tensors in it.
      pairs: (variable, key).
      workers: read what is for their own variables, if they share the directory. What one of
        them cannot read, this process does.

    Raises:
      DamagedError: a tensor is damaged or missing. Some variables may be assigned.
      UnreadableError: the system does not let this process read a file. Some variables may be
        assigned.
    """
    pairs = list(pairs)
    variables = {str(number): variable for number, (variable, _) in enumerate(pairs)}
    metadata_path = os.path.join(path, 'metadata.json')
    try:
        with reading(metadata_path, left_out=path):
            hosts = workers.hosts_that_read(metadata_path, hosts_of(variables))
    except NO_FILE as error:
        raise DamagedError(f'metadata.json cannot be read: {error.strerror}') from error
    here = [pairs[int(number)] for number in variables if number not in hosts]
    try:
        _assign_on_workers(path, kinds, pairs, hosts, workers)
    except WorkerError as error:
        logging.warning('%s cannot be read on %s; the trainer reads it', path, error)
        here = pairs

    values = tensors(path, [key for _, key in here])
    for (variable, _), value in zip(here, values, strict=True):
        with tf.device(variable.device):
            variable.assign(tf.cast(value, variable.dtype))
    wait_for_assignments(variable for variable, _ in here)


def _assign_on_workers(path: str, kinds: Kinds, pairs: Sequence[tuple[tf.Variable, str]],
                       hosts: Mapping[str, str], workers: WorkerFiles) -> None:
    """Lets workers assign their own variables; see `assign`.

    Args:
      path: a checkpoint.
      kinds: of the tensors in it.
      pairs: (variable, key).
      hosts: the number of a pair -> CPU of the worker that reads it.
      workers: read.

    Raises:
      WorkerError: one cannot read it.
    """
    on_workers = {number: pairs[int(number)][0] for number in hosts}
    wait_for_assignments(on_workers.values())
    for one_round in parts.rounds(kinds_of(on_workers), hosts):
        calls = []
        for part in one_round:
            own, keys = zip(*(pairs[int(number)] for number in part.keys), strict=True)
            calls.append((part.host, os.path.abspath(os.path.join(path, 'variables')),
                          list(map(_saved_name, keys)), own, [kinds[key]['dtype'] for key in keys]))
        at_once(workers.restore, calls)


# Names and texts.

def _saved_name(key: str) -> str:
    """Returns a tensor's name in the file.

    It is the name that tf.train.Checkpoint(variables={key: ...}) gives it.
    """
    escaped = key.replace('.', '..').replace('/', '.S')
    return f'variables/{escaped}/.ATTRIBUTES/VARIABLE_VALUE'


def sentence(error: Exception) -> str:
    """Returns the first line of an error, TensorFlow's or another, without the names of ops."""
    text = str(getattr(error, 'message', '') or error).strip().split('\n')[0]
    text = re.sub(r'^\{\{.*?\}\} *| *\[Op:\w*\].*$', '', text)
    return text.rstrip('.') or type(error).__name__
