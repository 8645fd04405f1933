"""RecordInput: TFRecord files of tf.train.Example, read by index.

A TFRecord file can only be read from the start, and shuffling it means a buffer whose content no checkpoint holds. Here an index of
the offsets of all records is made first, which reads 12 bytes of each, and then every record is one seek away.

    record   length uint64, checksum of length uint32, data, checksum of data uint32
"""
from __future__ import annotations

import functools
import glob
import os
import struct
import weakref
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, Configurable, field
from lingpipe.input.base import Input
from lingpipe.input.crc32c import masked_crc32c


class RecordFiles:
    """The records of some files, as one list.

    Attributes:
      paths: the files, in order.
    """

    def __init__(self, paths: Sequence[str], spans: Sequence[tuple[int, int | None]] | None = None):
        """
        Args:
          paths: plain TFRecord files.
          spans: of each file the first record and the one after the last; default: all.

        Raises:
          ValueError: a file that is compressed or broken.
        """
        self.paths = list(paths)
        offsets = [_offsets(path) for path in self.paths]
        if spans is not None:
            offsets = [found[first:end] for found, (first, end) in zip(offsets, spans, strict=True)]
        self._offsets = np.concatenate([np.zeros([0], np.int64), *offsets])
        self._ends = np.cumsum([len(found) for found in offsets])
        self._descriptors: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def place_of(self, index: int) -> tuple[str, int]:
        """(path of the file, byte where the record begins)."""
        return self.paths[int(np.searchsorted(self._ends, index, 'right'))], int(self._offsets[index])

    def __getitem__(self, index: int) -> bytes:
        path, offset = self.place_of(index)
        if path not in self._descriptors:
            self._descriptors[path] = os.open(path, os.O_RDONLY)
            weakref.finalize(self, os.close, self._descriptors[path])
        try:
            return _record(self._descriptors[path], offset)
        except BrokenError as error:
            raise ValueError(_broken(path, offset, error)) from error

    def read(self, index: tf.Tensor) -> tf.Tensor:
        """The records of int64 [n] as strings [n], in a graph."""
        records = tf.numpy_function(lambda indices: np.array([self[i] for i in indices], object), [index], tf.string, stateful=False)
        return tf.ensure_shape(records, index.shape)


class Feature(Configurable):
    """What a feature of a tf.train.Example holds. Params only."""

    class Params(Configurable.Params):
        """Type and shape."""
        dtype: Literal['float32', 'int64', 'string'] = field(REQUIRED, 'As it was written.')
        shape: tuple[int, ...] = field((), 'Its shape.', least=1)
        is_sequence: bool = field(False, 'Whether an example has any number of values of `shape` (); preprocess must make it static.')

        def check(self) -> None:
            """Raises ValueError for a sequence of anything but scalars."""
            if self.is_sequence and self.shape:
                raise ValueError(f'is_sequence with shape={list(self.shape)}: a sequence is one of scalars; reshape it in preprocess')


class RecordInput(Input):
    """TFRecord files of tf.train.Example. Files are taken in the order of their names."""

    class Params(Input.Params):
        """Which files, and what of their examples."""
        files: str = field(REQUIRED, 'A glob pattern, or several separated by commas.')
        features: dict[str, Feature.Params] = field(REQUIRED, 'Name -> Feature.Params, of those that are wanted.')

    params: Params

    def num_examples(self) -> int:
        """Of all files. Raises ValueError for a pattern that matches none, or a damaged file."""
        return len(self.records)

    def read(self, index: tf.Tensor) -> dict[str, Any]:
        """The features [n, ...] of index, int64 [n]."""
        def parser(feature: Any) -> Any:
            if feature.is_sequence:
                return tf.io.RaggedFeature(feature.dtype, row_splits_dtype=tf.int64)
            return tf.io.FixedLenFeature(feature.shape, feature.dtype)

        return tf.io.parse_example(self.records.read(index), {name: parser(f) for name, f in self.params.features.items()})

    def name_of(self, index: int) -> str:
        """File and byte of a record."""
        path, offset = self.records.place_of(index)
        return f'the record at byte {offset} of {path}'

    @functools.cached_property
    def records(self) -> RecordFiles:
        """The files that the pattern matches; the first record is looked at."""
        patterns = [pattern.strip() for pattern in self.params.files.split(',')]
        paths = []
        for pattern in patterns:
            found = sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))
            if not found:
                raise ValueError(f'files={pattern!r} matches no file; correct it (it is looked up from {os.getcwd()}).')
            paths += found
        records = RecordFiles(paths)
        if len(records):
            self._check_first(records)
        return records

    def _check_first(self, records: RecordFiles) -> None:
        try:
            there = tf.train.Example.FromString(records[0]).features.feature
        except Exception as error:   # protobuf's DecodeError has no public place
            raise ValueError(f'the first record of {records.paths[0]} is no tf.train.Example ({error}); override read for another '
                             'format.') from error
        kinds = {'float_list': 'float32', 'int64_list': 'int64', 'bytes_list': 'string'}
        for name, feature in self.params.features.items():
            kind = kinds.get(there[name].WhichOneof('kind') or '') if name in there else None
            if kind is None and not feature.is_sequence:
                raise ValueError(f'the first record of {records.paths[0]} lacks the feature {name!r}; it has '
                                 f'{", ".join(sorted(there)) or "none"}: correct features.')
            if kind is not None and kind != feature.dtype:
                raise ValueError(f'features.{name}.dtype={feature.dtype!r}, and {records.paths[0]} has {kind!r}; correct it.')


class BrokenError(Exception):
    """A record that is not as it was written; the message says why."""


def _record(descriptor: int, offset: int) -> bytes:
    """The record at an offset. Threads may read one file at a time: the file has no position."""
    header = os.pread(descriptor, 12, offset)
    if len(header) < 12:
        raise BrokenError('the file ends in its header')
    length, checksum = struct.unpack('<QI', header)
    if masked_crc32c(header[:8]) != checksum:
        raise BrokenError('its length does not have its checksum')
    data = os.pread(descriptor, length + 4, offset + 12)
    if len(data) < length + 4:
        raise BrokenError(f'the file ends before its {length} bytes do')
    if masked_crc32c(data[:-4]) != struct.unpack('<I', data[-4:])[0]:
        raise BrokenError('its data does not have its checksum')
    return data[:-4]


def _offsets(path: str) -> np.ndarray:
    """Where each record begins: int64 [n]."""
    size, offset, found = os.path.getsize(path), 0, []
    with open(path, 'rb', buffering=0) as file:
        descriptor = file.fileno()
        if os.pread(descriptor, 2, 0) == b'\x1f\x8b':
            raise ValueError(f'{path} is compressed, and records of a compressed file cannot be read by index; write it plain.')
        while offset < size:
            found.append(offset)
            header = os.pread(descriptor, 8, offset)
            offset += 16 + struct.unpack('<Q', header)[0] if len(header) == 8 else size
        if offset > size:   # a wrong length shows only later, when what follows makes no sense
            for offset in found:
                try:
                    _record(descriptor, offset)
                except BrokenError as error:
                    raise ValueError(_broken(path, offset, error)) from error
    return np.array(found, np.int64)


def _broken(path: str, offset: int, why: BrokenError) -> str:
    return f'{path} has a broken record at byte {offset}: {why}. Write the file again, or leave it out.'
