"""Checked arrays: what a call is given, as arrays that a network can read."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.layers.nested import Nested


def checked(name: str, value: Any, spec: Nested) -> Any:
    """Returns the examples of one input as arrays of the dtypes of its spec.

    Raises:
      ValueError: they have another shape or type.
    """
    if isinstance(spec, dict):
        if not isinstance(value, Mapping) or spec.keys() - value.keys():
            raise ValueError(f'{name!r} must be a dict of {", ".join(sorted(spec))}.')
        return {key: checked(f'{name}/{key}', value[key], spec[key]) for key in spec}

    array = _array(name, value, spec.dtype)
    if array.ndim != spec.shape.rank + 1 or not spec.shape.is_compatible_with(array.shape[1:]):
        expected = ', '.join(['N', *map(str, spec.shape)])
        raise ValueError(f'{name!r} is {array.dtype.name} {array.shape}, but the network takes '
                         f'{spec.dtype.name} [{expected}], a row for every example.')
    return array


def _array(name: str, value: Any, dtype: tf.DType) -> np.ndarray:
    """Returns a value as an array of a dtype. Numbers may change their width, but not their kind.

    Raises:
      ValueError: it is of another kind, or an integer does not fit.
    """
    wanted = np.dtype(dtype.as_numpy_dtype)
    if isinstance(value, list | tuple) and wanted.kind in 'iufb':
        value = np.asarray(value, wanted)
    array: np.ndarray = np.asarray(value)
    if array.dtype.kind not in _LIKE[wanted.kind]:
        is_object = array.dtype.kind == 'O'
        found = f'of Python objects ({type(value).__name__})' if is_object else f'of {array.dtype}'
        raise ValueError(f'{name!r} is {found}, but the network takes {dtype.name}; '
                         'convert it as the input of the experiment does.')
    converted = array.astype(wanted, copy=False)
    if wanted.kind in 'iu' and not np.array_equal(converted, array):
        raise ValueError(f'{name!r} has whole numbers that {dtype.name} cannot hold; correct them.')
    return converted


# Kind of a NumPy dtype -> the kinds that are converted to it; 'V' is bfloat16, 'O' strings.
_LIKE = {'i': 'iu', 'u': 'iu', 'f': 'fV', 'V': 'fV', 'b': 'b', 'c': 'fc', 'O': 'OSU'}
