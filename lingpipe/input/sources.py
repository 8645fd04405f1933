"""Sources: inputs that read examples by index from a Python object, or from ArrayRecord files.

Anything with len() and [] will do: the data sources and MapDatasets of Grain, data sets of
tensorflow-datasets' data_source, map-style data sets of PyTorch, data sets of Hugging Face, a list.
Their elements are dicts of arrays and numbers, or tuples, which get names. Shuffling, epochs,
batches and positions are lingpipe's own, as for all inputs, so that a run is resumed at once.
"""
from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.input.arrays import array_of
from lingpipe.input.base import Input
from lingpipe.input.elements import NAMES, named
from lingpipe.input.given import GivenParams
from lingpipe.input.records import RecordInput, Records, find_files
from lingpipe.layers import nested
from lingpipe.layers.nested import Nested
from lingpipe.wording.counts import counted
from lingpipe.wording.keras_words import gives_batches


class Source(Protocol):
    """What can be read by index."""

    def __len__(self) -> int:
        """The number of examples."""

    def __getitem__(self, index: int) -> Any:
        """An example: a dict of arrays and numbers, or a tuple."""


class SourceInput(Input):
    """Examples of an object with len() and []. Subclasses override `source`; `of` takes one."""

    class Params(Input.Params):
        """How an element becomes an example."""
        names: tuple[str, ...] = field(
            NAMES, 'The names of the elements of a tuple, in order. A dict needs none: as in '
                   'Keras, a dict in the place of x names its values, and one in the place of '
                   'labels names outputs.')

    params: Params

    @staticmethod
    def of(source: Source, *, batch_size: int, **params: Any) -> GivenSource.Params:
        """Params of an input of a source.

        Args:
          source: has len() and [].
          batch_size: examples in a mini-batch.
          **params: further fields; an evaluation has shuffle=False, num_epochs=1.
        """
        if not (hasattr(source, '__len__') and hasattr(source, '__getitem__')):
            raise ValueError(f'source is {type(source).__name__}, which has no len() or no []; '
                             'give one that is read by index, or a DatasetInput for a stream.')
        if gives_batches(source):
            raise ValueError(f'source is {type(source).__name__}, a PyDataset of Keras, whose '
                             'items are batches; give a source whose items are single examples, or '
                             'a DatasetInput with is_batched=True.')
        contents = f'{type(source).__name__} of {counted(len(source), "example")}'
        return GivenSource.Params(batch_size=batch_size, contents=contents,
                                  **params).giving(source)

    def source(self) -> Source:
        """The source. Called once."""
        raise NotImplementedError(f'{type(self).__name__} has no source')

    def num_examples(self) -> int:
        """The length of the source."""
        return len(self._source)

    def read(self, index: tf.Tensor) -> dict[str, Nested]:
        """Returns the examples [n, ...] at index, int64 [n]; all must be alike."""
        example = self._example(0)
        flat = dict(nested.flatten(example))
        dtypes = [tf.as_dtype(leaf.dtype) if leaf.dtype.kind not in 'OSU' else tf.string
                  for leaf in flat.values()]

        def examples_at(indices: np.ndarray) -> list[np.ndarray]:
            rows = [dict(nested.flatten(self._example(int(i)))) for i in indices]
            return [_stacked(path, [row.get(path) for row in rows], leaf, indices)
                    for path, leaf in flat.items()]

        tensors = tf.numpy_function(examples_at, [index], dtypes, stateful=False)
        shaped = [tf.ensure_shape(tensor, [*index.shape, *leaf.shape])
                  for tensor, leaf in zip(tensors, flat.values(), strict=True)]
        packed: dict[str, Nested] = nested.pack_like(example, shaped)
        return packed

    def _example(self, index: int) -> dict[str, Nested]:
        """One example as nested arrays by name."""
        element = self._source[index]
        if isinstance(element, tuple | list) and len(element) <= len(self.params.names):
            element = named(element, self.params.names)
        if element is None:
            raise ValueError(f'element {index} of {type(self._source).__name__} is None, as where '
                             'a MapDataset of Grain is filtered; leave such indices out of the '
                             'source, or make a DatasetInput of it.')
        if not isinstance(element, dict):
            raise ValueError(f'element {index} of {type(self._source).__name__} is '
                             f'{type(element).__name__}, but must be a dict of arrays, or a tuple '
                             f'of at most {len(self.params.names)}: set names.')
        for name, value in element.items():
            if value is None:
                raise ValueError(f'{name!r} of element {index} of {type(self._source).__name__} is '
                                 'None; give it a value, or leave it out of every element.')
        arrays: dict[str, Nested] = nested.map_leaves(array_of, element)
        return arrays

    @functools.cached_property
    def _source(self) -> Source:
        return self.source()


class GivenSource(SourceInput):
    """The source that SourceInput.of was given."""

    class Params(GivenParams, SourceInput.Params):
        """The source."""

    params: Params

    def source(self) -> Source:
        """The source."""
        given: Source = self.params.given
        return given


class ArrayRecordInput(RecordInput):
    """ArrayRecord files of tf.train.Example. The package array_record is imported when one is used.

    They are TFRecords that can be read by index, and compressed all the same.
    """

    @functools.cached_property
    def records(self) -> Records:
        """The files that the patterns match, whose first record has been checked."""
        records = ArrayRecordFiles(find_files(self.params.files))
        if len(records):
            self.check_first(records)
        return records


class ArrayRecordFiles:
    """The records of ArrayRecord files, by index over all of them, as RecordFiles."""

    def __init__(self, paths: Sequence[str]):
        try:
            module = importlib.import_module('array_record.python.array_record_data_source')
        except ImportError as error:
            raise ValueError(f'array_record is needed here and cannot be imported ({error}); run '
                             'pip install array_record.') from error
        self.paths = list(paths)
        try:
            self._source = module.ArrayRecordDataSource(self.paths)
        except Exception as error:   # It raises whatever its C++ code tells.
            raise ValueError(f'{", ".join(self.paths)} cannot be read as ArrayRecord: '
                             f'{" ".join(str(error).split())}; correct files.') from error

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> bytes:
        record: bytes = self._source[index]
        return record

    def place_of(self, index: int) -> tuple[str, int]:
        """The files, and the number of a record among all of theirs."""
        return ', '.join(self.paths), index

    def read(self, index: tf.Tensor) -> tf.Tensor:
        """Reads records within a graph: int64 [n] -> string [n]."""
        def records_at(indices: np.ndarray) -> np.ndarray:
            return np.array(self._source.__getitems__([int(i) for i in indices]), object)

        records = tf.numpy_function(records_at, [index], tf.string, stateful=False)
        return tf.ensure_shape(records, index.shape)


def _stacked(path: str, values: Sequence[Nested], first: np.ndarray,
             indices: np.ndarray) -> np.ndarray:
    """The values of some examples as one array.

    Raises:
      ValueError: one of them has another shape than the first example, or a dtype that its dtype
        cannot hold.
    """
    for index, value in zip(indices, values, strict=True):
        shape = None if value is None else value.shape
        if shape != first.shape:
            raise ValueError(f'{path!r} of example {index} has shape {shape}, but that of example '
                             f'0 has {first.shape}; give every example the same shape.')
        if not np.can_cast(value.dtype, first.dtype, 'same_kind'):
            raise ValueError(f'{path!r} of example {index} is {value.dtype}, but that of example 0 '
                             f'is {first.dtype}; give every example the same dtype.')
    if first.dtype.kind in 'OSU':
        return np.array([value.item() if value.ndim == 0 else value for value in values], object)
    return np.stack([_converted(path, value, first, index)
                     for index, value in zip(indices, values, strict=True)])


def _converted(path: str, value: np.ndarray, first: np.ndarray, index: int) -> np.ndarray:
    """The value in the dtype of the first example. Raises ValueError if that cannot hold it."""
    if value.dtype == first.dtype:
        return value
    with np.errstate(over='ignore', invalid='ignore'):
        converted = value.astype(first.dtype)
    if not (np.array_equal(converted, value) if first.dtype.kind in 'biu'
            else np.array_equal(np.isfinite(converted), np.isfinite(value))):
        raise ValueError(f'{path!r} of example {index} is {value.dtype} with numbers that '
                         f'{first.dtype}, as of example 0, cannot hold; give every example the '
                         'same dtype.')
    return converted
