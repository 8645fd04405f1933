"""Fingerprint: a few numbers by which two processes notice that they read different data.

Whole numbers and strings have a checksum. Others have a mean and a root mean square, which are
compared to three digits: processors of different types may compute the last bits of an image
differently.
"""
from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from lingpipe.input.base import Input
from lingpipe.input.dataset_input import DatasetInput
from lingpipe.input.example_source import ExampleSource
from lingpipe.layers import nested
from lingpipe.layers.nested import Nested
from lingpipe.wording.counts import counted

_TOLERANCE = 1e-3   # relative to the root mean square


def known_num_examples(source: Input) -> int | None:
    """The number of examples; None if they must be counted, or nothing tells it."""
    if isinstance(source, DatasetInput) or type(source).num_examples is ExampleSource.num_examples:
        return None
    return source.num_examples()


def fingerprint(source: Input, batch: Mapping[str, Nested]) -> dict[str, Any]:
    """Returns the number of examples, if it is known, and what is in a mini-batch.

    The result can be written as JSON, which turns it into an equal value.
    """
    return {'num_examples': known_num_examples(source),
            'leaves': {path: _of_leaf(np.asarray(leaf))
                       for path, leaf in nested.flatten(dict(batch))}}


def difference(own: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Says how the fingerprint of another process differs; '' if it does not.

    Args:
      own: of this process, the trainer.
      other: of the other one.
    """
    if own['num_examples'] != other['num_examples']:
        return (f'it has {counted(other["num_examples"], "example")} there, and '
                f'{own["num_examples"]} in the trainer')
    for path, leaf in own['leaves'].items():
        other_leaf = other['leaves'].get(path)
        if other_leaf is None or not _are_alike(leaf, other_leaf):
            return f'{path!r} of the same mini-batch differs'
    return ''


def _of_leaf(array: np.ndarray) -> list[Any]:
    """Returns [dtype, shape, numbers]."""
    numbers: list[float]
    if array.dtype.kind in 'biu':
        numbers = [zlib.crc32(np.ascontiguousarray(array).tobytes())]
    elif array.dtype.kind in 'OS':
        numbers = [zlib.crc32(b'\0'.join(map(bytes, array.flat)))]
    else:
        wide = array.astype(np.float64)
        numbers = [float(wide.mean()), float((wide ** 2).mean() ** 0.5)]
    return [str(array.dtype), list(array.shape), numbers]


def _are_alike(own: list[Any], other: list[Any]) -> bool:
    """Whether two leaves are the same, as far as their fingerprints tell."""
    *kind, numbers = own
    *other_kind, other_numbers = other
    if kind != other_kind or len(numbers) == 1:
        return own == other
    return all(a == b or abs(a - b) <= _TOLERANCE * numbers[1] or math.isnan(a) and math.isnan(b)
               for a, b in zip(numbers, other_numbers, strict=True))
