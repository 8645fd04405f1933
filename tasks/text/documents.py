"""Documents: the texts of plain files, JSON lines and TFRecord files, in order.

    *.jsonl, *.ndjson          JSON lines: an object a line, its text under a key
    *.tfrecord, *.tfrecords    tf.train.Example, the text in a feature of bytes
    all others                 plain text, one document a file

A file of another name that holds JSON lines is refused, and *.json with a list of such objects,
since braces and keys would be read as text. A plain file or JSON lines may be compressed by gzip.
"""
from __future__ import annotations

import glob
import gzip
import itertools
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import tensorflow as tf

from lingpipe.input.records import RecordFiles

Format = Literal['auto', 'text', 'lines', 'jsonl', 'tfrecord']

NUM_LOOKED_AT = 100   # lines of a plain file that begins with JSON

# What files that are not UTF-8 are, by their first bytes, with the remedy.
_NOT_UTF8 = {b'\xff\xfe': 'is UTF-16; convert it: iconv -f UTF-16 -t UTF-8',
             b'\xfe\xff': 'is UTF-16; convert it: iconv -f UTF-16 -t UTF-8',
             b'BZh': 'is compressed by bzip2; unpack it, or compress it by gzip',
             b'\xfd7zX': 'is compressed by xz; unpack it, or compress it by gzip',
             b'\x28\xb5\x2f\xfd': 'is compressed by zstd; unpack it, or compress it by gzip'}


def source_paths(patterns: Sequence[str]) -> list[str]:
    """The files that patterns name, sorted, each once; ** stands for any number of folders.

    Raises:
      ValueError: a pattern names no file.
    """
    paths: set[str] = set()
    for pattern in patterns:
        named = [path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)]
        if not named:
            raise ValueError(f'{pattern} names no file; correct files= of the input, or unpack '
                             'the corpus there.')
        paths.update(named)
    # Patterns may spell a path in several ways, as a.txt and ./a.txt.
    path_by_place = {os.path.abspath(path): path for path in sorted(paths, reverse=True)}
    return sorted(path_by_place.values())


def documents(path: str, format: Format = 'auto', key: str = 'text') -> Iterator[str]:
    """Yields the documents of one file; those without text are left out.

    Args:
      path: the file.
      format: 'auto' goes by the name of the file; with 'lines', each line is a document.
      key: the key of JSON, or the feature of a record, that holds the text.

    Raises:
      ValueError: the file is not in that format, or holds JSON lines and its name does not say so,
        or a list in JSON.
    """
    readers = {'text': _whole, 'lines': _lines, 'jsonl': _json_lines, 'tfrecord': _records}
    name = format if format != 'auto' else _format_of(path)
    if format == 'auto' and name == 'text':
        _check_is_plain(path, key)
        _check_is_no_list(path, key)
    for text in readers[name](path, key):
        if text.strip():
            yield text


def _format_of(path: str) -> str:
    extension = os.path.splitext(path.removesuffix('.gz'))[1]
    if extension in ('.jsonl', '.ndjson'):
        return 'jsonl'
    return 'tfrecord' if extension in ('.tfrecord', '.tfrecords') else 'text'


def _check_is_plain(path: str, key: str) -> None:
    """Raises ValueError if the first line that is not blank is JSON with a text under a key."""
    lines = ((number, line) for number, line in enumerate(_lines(path, key), 1) if line.strip())
    _, first = next(lines, (0, ''))
    value = _json_object(first)
    if value is None or not isinstance(value.get(key), str):
        return
    others = [number for number, line in itertools.islice(lines, NUM_LOOKED_AT)
              if _json_object(line) is None]
    if others:
        raise ValueError(f'{path} begins with a JSON line with a text under {key!r}, but line '
                         f'{others[0]} is no JSON object; set format=text of the input to read it '
                         'as it is, or correct that line and set format=jsonl.')
    raise ValueError(f'{path} holds JSON lines with a text under {key!r}, but by its name it is '
                     'plain text; set format=jsonl of the input, or format=text to read it as it '
                     'is.')


def _check_is_no_list(path: str, key: str) -> None:
    """Raises ValueError if the file is *.json with a list of objects with texts under a key."""
    if not path.removesuffix('.gz').endswith('.json'):
        return
    text = ''.join(_lines(path, key, ''))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    objects = value if isinstance(value, list) else []
    if objects and all(isinstance(one, dict) and isinstance(one.get(key), str) for one in objects):
        raise ValueError(f'{path} holds a list in JSON, of objects with a text under {key!r}; '
                         "write it as JSON lines (jq -c '.[]'), in a file *.jsonl, or set "
                         'format=text of the input to read it as it is.')


def _json_object(line: str) -> dict[str, Any] | None:
    """The object that a line of JSON is; None if it is none."""
    if not line.lstrip().startswith('{'):   # Other lines need not be parsed.
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _whole(path: str, key: str) -> Iterator[str]:
    yield ''.join(_lines(path, key, ''))


def _lines(path: str, key: str, end: str = '\n') -> Iterator[str]:
    number = 0
    try:
        with open(path, 'rb') as raw:
            beginning = raw.read(4)
        is_compressed = beginning.startswith(b'\x1f\x8b')
        with gzip.open(path, 'rb') if is_compressed else open(path, 'rb') as raw:
            _check_zero_bytes(path, raw.read(4096))
        # Some programs put a byte order mark before a text, which is not part of it.
        with (gzip.open(path, 'rt', encoding='utf-8-sig') if is_compressed
              else open(path, encoding='utf-8-sig')) as file:
            for line in file:
                number += 1
                yield line.rstrip(end) if end else line
    except UnicodeDecodeError as error:
        what = next((text for magic, text in _NOT_UTF8.items() if beginning.startswith(magic)),
                    f'is not UTF-8 after line {number}; convert it: iconv -f LATIN1 -t UTF-8')
        raise ValueError(f'{path} {what}, or leave it out of files=.') from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f'{path} is damaged ({error}); fetch it again.') from error


def _check_zero_bytes(path: str, beginning: bytes) -> None:
    """Raises ValueError if a text begins with as many zero bytes as UTF-16 has.

    It may be valid UTF-8. ASCII has one in every character there, and other alphabets of Europe in
    every space. What has a mark of its own fails to be UTF-8.
    """
    num_zero = beginning.count(0)
    if 50 * num_zero <= len(beginning) or beginning.startswith(tuple(_NOT_UTF8)):
        return
    is_little_endian = beginning[1::2].count(0) >= beginning[::2].count(0)
    raise ValueError(f'{path} is UTF-16 without a byte order mark, or no text: of its first '
                     f'{len(beginning):,} bytes, {num_zero:,} are zero; convert it: iconv -f '
                     f'UTF-16{"LE" if is_little_endian else "BE"} -t UTF-8, or leave it out of '
                     'files=.')


def _json_lines(path: str, key: str) -> Iterator[str]:
    for number, line in enumerate(_lines(path, key), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f'{path}, line {number} is no JSON: {error}; correct it, or set '
                             'format=text of the input to read the file as it is.') from error
        if not isinstance(value, dict) or not isinstance(value.get(key), str):
            keys = ', '.join(map(repr, value)) if isinstance(value, dict) else 'no object'
            raise ValueError(f'{path}, line {number} has no text under {key!r} ({keys}); set key= '
                             'of the input.')
        try:
            value[key].encode()
        except UnicodeEncodeError as error:
            raise ValueError(f'{path}, line {number} has half a character (a lone surrogate, '
                             f'\\ud800 to \\udfff) under {key!r}; correct it.') from error
        yield value[key]


def _records(path: str, key: str) -> Iterator[str]:
    records = RecordFiles([path])
    for i in range(len(records)):
        try:
            features = tf.train.Example.FromString(records[i]).features.feature
        except Exception as error:   # protobuf's DecodeError has no public place
            raise ValueError(f'{path}, record {i} is no tf.train.Example ({error}); write it as '
                             'one, or set format= of the input.') from error
        values = features[key].bytes_list.value if key in features else []
        if len(values) != 1:
            raise ValueError(f'{path}, record {i} has no text in the feature {key!r} '
                             f'({", ".join(sorted(features)) or "none"}); set key= of the input.')
        try:
            yield values[0].decode()
        except UnicodeDecodeError as error:
            raise ValueError(f'{path}, record {i}: {key!r} is not UTF-8; write it as '
                             'UTF-8.') from error
