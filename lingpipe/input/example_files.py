"""Example files: examples to predict from, read from a file by the names of what a network takes.

    .npz       an array [N, ...] for every input, by its name
    .npy       one array [N, ...], for a network that takes one input
    .csv       a line of names, then a line for every example. A column is called as the input or,
               if an example has several numbers, NAME.0, NAME.1, ... in row-major order
    .jsonl     a JSON object for every example: name -> number, text or nested lists
    otherwise  TFRecords of tf.train.Example with a feature for every input; several files by a
               pattern, as in RecordInput

Labels and other names that the network does not take are ignored.
"""
from __future__ import annotations

import csv
import json
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.input.checked_arrays import from_lists
from lingpipe.input.records import RecordFiles, find_files
from lingpipe.layers.nested import Nested
from lingpipe.process.error_text import sentence
from lingpipe.wording.counts import counted
from lingpipe.wording.values import show

Specs = Mapping[str, tf.TensorSpec]


def read_examples(path: str, specs: Specs,
                  optional: frozenset[str] = frozenset()) -> dict[str, Nested]:
    """Returns arrays [N, ...] by name.

    Args:
      path: of the file, whose ending says the format.
      specs: of one example, by name.
      optional: names that may be missing.

    Raises:
      ValueError: something is missing, or not as the specs say.
      OSError: the file cannot be read.
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix in _IMAGES:
        raise ValueError(f'{path} is an image, and examples are read from .npz, .npy, .csv, .jsonl '
                         'and TFRecord files; name an eval input that reads images, or write the '
                         'pixels as arrays.')
    read = _READERS.get(suffix, _read_records)
    try:
        return read(path, specs, optional)
    except UnicodeDecodeError as error:
        raise ValueError(f'{path} is not UTF-8; convert it: iconv -f LATIN1 -t UTF-8.') from error
    except OSError as error:
        raise OSError(f'{path} cannot be read: {error.strerror or error}; correct the '
                      'path.') from error


def _read_npz(path: str, specs: Specs, optional: frozenset[str]) -> dict[str, Nested]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in specs if name in file}
            names = list(file)
    except (ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(f'{path} cannot be read: {_reason(error)}; write it by '
                         'numpy.savez.') from error
    _check_names(path, names, specs, optional)
    return arrays


def _read_npy(path: str, specs: Specs, optional: frozenset[str]) -> dict[str, Nested]:
    needed = [name for name in specs if name not in optional]
    if len(needed) != 1:
        raise ValueError(f'{path} holds one array, but the network takes {", ".join(needed)}; '
                         'write an .npz file with all of them.')
    try:
        return {needed[0]: np.load(path, allow_pickle=False)}
    except (ValueError, EOFError) as error:
        raise ValueError(f'{path} cannot be read: {_reason(error)}; write it by '
                         'numpy.save.') from error


def _reason(error: Exception) -> str:
    """Why NumPy cannot read a file. It takes what it does not know for pickled objects."""
    text = str(error).rstrip('.')
    return 'it holds no arrays of numbers or strings' if 'pickle' in text else text


def _read_csv(path: str, specs: Specs, optional: frozenset[str]) -> dict[str, Nested]:
    with open(path, encoding='utf-8-sig', newline='') as file:
        reader = csv.reader(file, strict=True)
        try:
            rows = [(reader.line_num, row) for row in reader if row]
        except csv.Error as error:
            raise ValueError(f'line {reader.line_num} of {path} is no CSV: {error}; quote a value '
                             'that holds commas or quotes, and double the quotes in it.') from error
    if not rows:
        raise ValueError(f'{path} is empty; begin it with a line of names.')
    header, lines = [name.strip() for name in rows[0][1]], rows[1:]
    number_of = {name: number for number, name in enumerate(header)}

    columns: dict[str, list[int]] = {}
    for name, spec in specs.items():
        size = spec.shape.num_elements()
        names = [name] if spec.shape.rank == 0 else [f'{name}.{i}' for i in range(size or 0)]
        missing = [column for column in names if column not in number_of]
        if missing and name not in optional:
            raise ValueError(
                f'{path} has no column {missing[0]!r}; the network takes {_listed(specs, optional)}'
                f', and the columns are {", ".join(header[:8])}{", ..." * (len(header) > 8)}.')
        if spec.shape.rank and f'{name}.{size}' in number_of:
            raise ValueError(f'{path} has a column {name}.{size}, but {name!r} has only '
                             f'{counted(int(size), "number")}; remove the columns that are too '
                             'many.')
        twice = [column for column in names if header.count(column) > 1]
        if twice:
            raise ValueError(f'{path} has the column {twice[0]!r} twice; remove one of them.')
        if not missing:
            columns[name] = [number_of[column] for column in names]

    if not lines:
        raise ValueError(f'{path} has no examples; write one a line below that of the names.')
    for number, row in lines:
        if len(row) != len(header):
            raise ValueError(f'line {number} of {path} has {counted(len(row), "value")}, but there '
                             f'are {counted(len(header), "column")}; correct it.')
    return {name: _array(path, name, _cells(path, name, numbers, lines, specs[name].dtype),
                         specs[name])
            for name, numbers in columns.items()}


def _cells(path: str, name: str, columns: Sequence[int],
           lines: Sequence[tuple[int, list[str]]], dtype: tf.DType) -> list[list[Any]]:
    """The values of some columns of a CSV file, line by line.

    Raises:
      ValueError: a text is no value of the dtype.
    """
    def value(text: str) -> Any:
        if dtype == tf.string:
            return text
        if dtype == tf.bool:
            return _BOOLS[text.strip().lower()]
        return int(text) if dtype.is_integer else float(text)

    values = []
    for number, row in lines:
        try:
            values.append([value(row[column]) for column in columns])
        except (ValueError, KeyError):
            found = show([row[column] for column in columns])
            raise ValueError(f'line {number} of {path} has {found} for {name!r}, which is '
                             f'{dtype.name}; correct it.') from None
    return values


_BOOLS = {'true': True, 'false': False, '1': True, '0': False}


def _read_json_lines(path: str, specs: Specs, optional: frozenset[str]) -> dict[str, Nested]:
    values: dict[str, list[Any]] = {}
    with open(path, encoding='utf-8-sig') as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                example = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f'line {number} of {path} is no JSON: {error}; write one object a '
                                 'line.') from error
            if not isinstance(example, dict):
                raise ValueError(f'line {number} of {path} is no JSON object; write one as '
                                 '{"NAME": value}.')
            _check_names(f'line {number} of {path}', list(example), specs, optional)
            for name in specs:
                if name in example:
                    values.setdefault(name, []).append(example[name])
    if not values:
        raise ValueError(f'{path} has no examples; write one object a line.')
    return {name: _array(path, name, rows, specs[name]) for name, rows in values.items()}


def _read_records(path: str, specs: Specs, optional: frozenset[str]) -> dict[str, Nested]:
    records = RecordFiles(find_files(path))
    if not len(records):
        raise ValueError(f'{path} has no records; write at least one.')
    serialized = [records[i] for i in range(len(records))]
    try:
        found = tf.train.Example.FromString(serialized[0]).features.feature
    except Exception as error:   # protobuf's DecodeError has no public place
        raise ValueError(f'the first record of {path} is no tf.train.Example ({error}); a file of '
                         'another format ends in .npz, .npy, .csv or .jsonl.') from error
    _check_names(f'the first record of {path}', list(found), specs, optional)

    parsers = {name: tf.io.FixedLenFeature(spec.shape, _STORED.get(spec.dtype, tf.float32))
               for name, spec in specs.items() if name in found}
    try:
        with tf.device('CPU:0'):
            names = [f'example {i}' for i in range(len(serialized))]   # for errors
            parsed = tf.io.parse_example(serialized, parsers, names)
    except tf.errors.InvalidArgumentError as error:
        why = ' '.join(sentence(error).rstrip('.').split())
        raise ValueError(f'{path} cannot be parsed ({why}); write what the network takes: '
                         f'{_listed(specs, optional)}.') from error
    return {name: tensor.numpy() for name, tensor in parsed.items()}


# The dtypes of tf.train.Example that hold those of a network; all others are in float32.
_STORED = {tf.string: tf.string, **dict.fromkeys(
    (tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32, tf.uint32, tf.int64, tf.bool), tf.int64)}

_IMAGES = ('.jpg', '.jpeg', '.png', '.bmp', '.gif', '.webp')

_READERS: dict[str, Callable[[str, Specs, frozenset[str]], dict[str, Nested]]] = {
    '.npz': _read_npz, '.npy': _read_npy, '.csv': _read_csv, '.jsonl': _read_json_lines}


def _check_names(where: str, names: Sequence[str], specs: Specs, optional: frozenset[str]) -> None:
    missing = [name for name in specs if name not in names and name not in optional]
    if missing:
        raise ValueError(f'{where} has no {missing[0]!r}; the network takes '
                         f'{_listed(specs, optional)}, and there are '
                         f'{", ".join(sorted(names)) or "none"}.')


def _listed(specs: Specs, optional: frozenset[str]) -> str:
    """'image float32 [8, 8, 1], id int32 []'."""
    return ', '.join(f'{name} {spec.dtype.name} {spec.shape.as_list()}'
                     for name, spec in specs.items() if name not in optional)


def _array(path: str, name: str, rows: Sequence[Any], spec: tf.TensorSpec) -> np.ndarray:
    """The values of all examples as one array.

    Raises:
      ValueError: a value is of another type, or an example has another shape.
    """
    try:
        array = from_lists(rows, spec.dtype)
        # An example is flat, as in a CSV file, or has the shape of the spec.
        if array.ndim != 2 and array.shape[1:] != tuple(spec.shape):
            raise ValueError(f'the shape is {list(array.shape[1:])}')
        return array.reshape([len(rows), *spec.shape])
    except (ValueError, OverflowError) as error:
        raise ValueError(f'{name!r} of {path} is not {spec.dtype.name} {spec.shape.as_list()} in '
                         f'every example: {error}.') from error
