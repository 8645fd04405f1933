"""RecordInput: TFRecord files of tf.train.Example, read by index.

The obvious way is tf.data.TFRecordDataset. But it reads a file from its beginning only, and to
shuffle it takes a buffer, whose content no checkpoint holds. Here the offsets of all records are
found first, which reads 8 bytes of each; from then on every record is one read away.

    record   length uint64, checksum of length uint32, data, checksum of data uint32

Offsets and records are read by hand, checksums are google-crc32c's. These libraries were tried:

- TensorFlow's tf_record_random_reader is not public, and it reads ahead: in random order it took
  23 to 190 times as long for a record. To find the offsets, it has to read all the data.
- array_record has its own format, to which a user would have to convert all files.
"""
from __future__ import annotations

import collections
import functools
import glob
import math
import os
import struct
import weakref
from collections.abc import Sequence
from typing import Literal, Protocol

import google_crc32c
import numpy as np
import tensorflow as tf
from absl import logging

from lingpipe.hyperparams import REQUIRED, Configurable, field
from lingpipe.input.base import Input
from lingpipe.layers.nested import Nested
from lingpipe.wording.counts import counted


class Records(Protocol):
    """The records of several files, as one list."""

    def __len__(self) -> int:
        """The number of records."""

    def __getitem__(self, index: int) -> bytes:
        """A record."""

    def place_of(self, index: int) -> tuple[str, int]:
        """The path of a record, and where it is in that file."""

    def read(self, index: tf.Tensor) -> tf.Tensor:
        """Reads records within a graph: int64 [n] -> string [n]."""


class RecordFiles:
    """The records of several files, as one list.

    Attributes:
      paths: the files, in order.
    """

    def __init__(self, paths: Sequence[str], spans: Sequence[tuple[int, int | None]] | None = None):
        """
        Args:
          paths: uncompressed TFRecord files.
          spans: the first record of each file, and the one after its last; by default, all.

        Raises:
          ValueError: a file is compressed or broken.
        """
        self.paths = list(paths)
        offsets_by_file = [_offsets(path) for path in self.paths]
        if spans is not None:
            offsets_by_file = [offsets[first:end] for offsets, (first, end)
                               in zip(offsets_by_file, spans, strict=True)]
        self._offsets = np.concatenate([np.zeros([0], np.int64), *offsets_by_file])
        self._ends = np.cumsum([len(offsets) for offsets in offsets_by_file])
        self._descriptors: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def place_of(self, index: int) -> tuple[str, int]:
        """Returns the path of the file that holds a record, and the byte where it begins."""
        file_number = int(np.searchsorted(self._ends, index, 'right'))
        return self.paths[file_number], int(self._offsets[index])

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
        """Reads records within a graph: int64 [n] -> string [n]."""
        def records_at(indices: np.ndarray) -> np.ndarray:
            return np.array([self[i] for i in indices], object)

        records = tf.numpy_function(records_at, [index], tf.string, stateful=False)
        return tf.ensure_shape(records, index.shape)


def find_files(patterns: str) -> list[str]:
    """The files that glob patterns match, separated by commas, in the order of their names.

    The path of a file that exists is that file, even if it has commas, brackets or stars.

    A file that several patterns match is there for each of them, and the log says so.

    Raises:
      ValueError: a pattern matches no file.
    """
    paths = []
    for pattern in [patterns] if os.path.isfile(patterns) else patterns.split(','):
        pattern = pattern.strip()
        matches = [pattern] if os.path.isfile(pattern) else sorted(
            filter(os.path.isfile, glob.glob(pattern, recursive=True)))
        if not matches:
            raise ValueError(f'files={pattern!r} matches no file; correct it (it is looked up '
                             f'from {os.getcwd()}).')
        paths += matches

    several_times = [path for path, number in collections.Counter(paths).items() if number > 1]
    if several_times:
        logging.warning('files=%r matches files more than once, whose examples then count as often '
                        '(%s%s)', patterns, several_times[0], ', ...' * (len(several_times) > 1))
    return paths


class Feature(Configurable):
    """What a feature of a tf.train.Example holds. It has Params only."""

    class Params(Configurable.Params):
        """The type and the shape."""
        dtype: Literal['float32', 'int64', 'string'] = field(
            REQUIRED, 'The type, as it was written.')
        shape: tuple[int, ...] = field((), 'The shape.', least=1)
        is_sequence: bool = field(
            False, 'Whether an example has any number of values of `shape` (); preprocess must '
                   'make it static.')

        def check(self) -> None:
            """Raises ValueError for a sequence of anything but scalars."""
            if self.is_sequence and self.shape:
                raise ValueError(f'is_sequence with shape={list(self.shape)}: a sequence is one of '
                                 'scalars; reshape it in preprocess')


class RecordInput(Input):
    """TFRecord files of tf.train.Example. The files are read in the order of their names."""

    class Params(Input.Params):
        """The files, and the features of their examples that are read."""
        files: str = field(REQUIRED, 'A glob pattern, or several separated by commas.')
        features: dict[str, Feature.Params] = field(
            REQUIRED, 'Name -> Feature.Params, for those that are wanted.')

    params: Params

    def num_examples(self) -> int:
        """The number of examples in all files.

        Raises:
          ValueError: a pattern matches no file, or a file is damaged.
        """
        return len(self.records)

    def read(self, index: tf.Tensor) -> dict[str, Nested]:
        """Returns the features [n, ...] of the examples at index, int64 [n].

        Raises:
          ValueError: there are none, which is for a subclass that reads another format here.
        """
        if not self.params.features:
            raise ValueError('features={} reads nothing; name the features that are wanted, or '
                             'override read in a class of your own for another format.')

        def parser(feature: Feature.Params) -> tf.io.FixedLenFeature | tf.io.RaggedFeature:
            if feature.is_sequence:
                return tf.io.RaggedFeature(feature.dtype, row_splits_dtype=tf.int64)
            return tf.io.FixedLenFeature(feature.shape, feature.dtype)

        parsers = {name: parser(feature) for name, feature in self.params.features.items()}
        # TensorFlow's errors show these names.
        names = tf.strings.join(['example ', tf.strings.as_string(index)])
        examples: dict[str, Nested] = tf.io.parse_example(self.records.read(index), parsers, names)
        return examples

    def name_of(self, index: int) -> str:
        """The file of a record, and the byte where it begins."""
        path, offset = self.records.place_of(index)
        return f'the record at byte {offset} of {path}'

    @functools.cached_property
    def records(self) -> Records:
        """The files that the patterns match, whose first record has been checked."""
        records = RecordFiles(find_files(self.params.files))
        if len(records):
            self.check_first(records)
        return records

    def check_first(self, records: Records) -> None:
        """Raises ValueError if the first record does not have the features that Params name."""
        if not self.params.features:   # A subclass reads another format.
            return
        path, _ = records.place_of(0)
        record = records[0]
        try:
            example = tf.train.Example.FromString(record)
        except Exception as error:   # protobuf's DecodeError has no public place
            raise ValueError(f'the first record of {path} is no tf.train.Example ({error}); for '
                             'another format override read, and give features={}.') from error

        kinds = {'float_list': 'float32', 'int64_list': 'int64', 'bytes_list': 'string'}
        saved = {name: (kinds[kind], len(getattr(feature, kind).value))
                 for name, feature in example.features.feature.items()
                 if (kind := feature.WhichOneof('kind'))}
        for name, feature in self.params.features.items():
            kind, length = saved.get(name, (None, 0))
            if kind is None and not feature.is_sequence:
                raise ValueError(f'the first record of {path} lacks the feature {name!r}; it has '
                                 f'{", ".join(sorted(saved)) or "none"}: correct features.')
            if kind is not None and kind != feature.dtype:
                raise ValueError(f'features.{name}.dtype={feature.dtype!r}, and {path} has '
                                 f'{kind!r}; correct it.')
            if not feature.is_sequence and length != math.prod(feature.shape):
                raise ValueError(
                    f'features.{name}.shape={list(feature.shape)} is of '
                    f'{counted(math.prod(feature.shape), "value")}, and the first record of {path} '
                    f'has {length}; correct it, or set is_sequence if their number varies.')


class BrokenError(Exception):
    """A record is not as it was written; the message says why."""


def masked_crc32c(data: bytes) -> int:
    """The checksum as TFRecord files store it.

    It is rotated and shifted, so that the checksum of data that holds checksums is a good one too.
    """
    crc: int = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _record(descriptor: int, offset: int) -> bytes:
    """Reads the record at an offset. Several threads may do so: the file's position is not used."""
    header = os.pread(descriptor, 12, offset)
    if len(header) < 12:
        raise BrokenError('the file ends in its header')
    length, length_checksum = struct.unpack('<QI', header)
    if masked_crc32c(header[:8]) != length_checksum:
        raise BrokenError('its length does not have its checksum')

    rest = os.pread(descriptor, length + 4, offset + 12)
    if len(rest) < length + 4:
        raise BrokenError(f'the file ends before its {length} bytes do')
    data = rest[:-4]
    if masked_crc32c(data) != struct.unpack('<I', rest[-4:])[0]:
        raise BrokenError('its data does not have its checksum')
    return data


def _offsets(path: str) -> np.ndarray:
    """Returns where each record of a file begins: int64 [n]."""
    size = os.path.getsize(path)
    offsets = []
    with open(path, 'rb', buffering=0) as file:
        descriptor = file.fileno()
        if os.pread(descriptor, 2, 0) == b'\x1f\x8b':
            raise ValueError(f'{path} is compressed, and records of a compressed file cannot be '
                             'read by index; write it plain.')

        offset = 0
        while offset < size:
            offsets.append(offset)
            length = os.pread(descriptor, 8, offset)
            offset += 16 + struct.unpack('<Q', length)[0] if len(length) == 8 else size

        # A wrong length leads to an offset within a record, and from there beyond the file's end.
        if offset > size:
            for offset in offsets:
                try:
                    _record(descriptor, offset)
                except BrokenError as error:
                    raise ValueError(_broken(path, offset, error)) from error
    return np.array(offsets, np.int64)


def _broken(path: str, offset: int, why: BrokenError) -> str:
    return (f'{path} has a broken record at byte {offset}: {why}. Write the file again, or leave '
            'it out.')
