"""Checked arrays: what a call is given, as arrays that a network can read."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.layers.nested import Nested
from lingpipe.wording.values import show


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
    if isinstance(value, list | tuple):
        try:
            return from_lists(value, dtype)
        except ValueError as error:
            raise ValueError(f'{name!r} is not {dtype.name} in every example: {error}.') from error
    wanted = np.dtype(dtype.as_numpy_dtype)
    array: np.ndarray = np.asarray(value)
    check_not_masked(f'{name!r}', value)
    if array.dtype.kind not in _LIKE[wanted.kind]:
        is_object = array.dtype.kind == 'O'
        found = f'of Python objects ({type(value).__name__})' if is_object else f'of {array.dtype}'
        raise ValueError(f'{name!r} is {found}, but the network takes {dtype.name}; '
                         'convert it as the input of the experiment does.')
    return narrowed(name, array, wanted)


def check_not_masked(what: str, value: Any) -> None:
    """Raises ValueError if values are masked, since what is behind the mask would count."""
    if np.ma.is_masked(value):
        raise ValueError(f'{what} is an array with masked values, which a network cannot skip; '
                         'fill them, as array.filled(0), or leave these examples out.')


def check_weights(weight: Any, what: str = "'weight'") -> None:
    """Raises ValueError unless all weights of examples, or of their tokens, are 0 or more.

    A sum of weights, by which a loss is divided, would otherwise be smaller than its parts. nan is
    found by what looks for values that are not finite. The message calls the weights `what`.
    """
    array = np.asarray(weight)
    if array.dtype.kind == 'c':
        raise ValueError(f'{what} is of {array.dtype}, but what an example counts is a real '
                         'number of 0 or more; give float32.')
    if array.dtype.kind not in 'ifV' or not (is_negative := array < 0).any():
        return
    number = int(np.argwhere(is_negative)[0][0]) if array.ndim else 0
    raise ValueError(f'{what} has {array[is_negative][0]:g} in example {number}, but what an '
                     'example counts is 0 or more; give 0 to leave it out, or change the loss.')


def narrowed(name: str, array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Returns an array in another dtype.

    Raises:
      ValueError: a finite number would become infinite, or a whole number another one.
    """
    with np.errstate(over='ignore'):   # That is an error below.
        converted = array.astype(dtype, copy=False)
    is_float = array.dtype.kind == 'f' and tf.as_dtype(dtype).is_floating
    if is_float and array.itemsize > dtype.itemsize:
        too_large = array[np.isinf(converted) & ~np.isinf(array)]
        if too_large.size:
            raise ValueError(f'{name!r} has {too_large[0]:g}, which is larger than {dtype} can '
                             'hold; scale it.')
    if dtype.kind in 'iu' and not np.array_equal(converted, array):
        raise ValueError(f'{name!r} has whole numbers that {dtype.name} cannot hold; correct them.')
    return converted


def from_lists(rows: Sequence[Any], dtype: tf.DType) -> np.ndarray:
    """Returns lists of Python's values as an array of a dtype.

    JSON and lists hardly tell 3 from 3.0, so that a number may be written either way.

    Raises:
      ValueError: the lists are ragged, or a value is of another kind or does not fit.
    """
    wanted = np.dtype(dtype.as_numpy_dtype)
    if wanted.kind == 'O':
        array: np.ndarray = np.asarray(rows, object)
        others = [item for item in array.flat if not isinstance(item, str | bytes)]
        if others:
            raise ValueError(f'{show(others[0])} is no text')
        return array

    try:
        array = np.asarray(rows)
    except ValueError:   # NumPy's message is about its own arguments.
        raise ValueError('its lists have different lengths') from None
    kinds = {'b': 'b', 'c': f'c{_NUMBERS}'}.get(wanted.kind, _NUMBERS)
    if array.size and array.dtype.kind not in kinds:
        raise ValueError(f'it has {_kind_name(array)}')
    with np.errstate(over='ignore', invalid='ignore'):   # What they ignore is an error below.
        converted = array.astype(wanted)
    if wanted.kind in 'iu' and not np.array_equal(converted, array):
        wrong = array[converted != array]
        raise ValueError(f'{show(wrong[0].item())} is no whole number that {dtype.name} can hold')
    if wanted.kind == 'f' and array.dtype.kind == 'f':
        too_large = array[np.isinf(converted) & ~np.isinf(array)]
        if too_large.size:
            raise ValueError(f'{show(too_large[0].item())} is larger than {dtype.name} can hold')
    return converted


def _kind_name(array: np.ndarray) -> str:
    """What is in an array that should have other values."""
    if array.dtype.kind == 'O':
        return 'null or other values that are no numbers'
    return {'b': 'true or false', 'U': 'text', 'S': 'text', 'c': 'complex numbers'}.get(
        array.dtype.kind, 'numbers')


_NUMBERS = 'iufV'  # Kinds of NumPy's dtypes; 'V' is bfloat16.

# Kind of a NumPy dtype -> the kinds that are converted to it; 'V' is bfloat16, 'O' strings.
_LIKE = {'i': 'iu', 'u': 'iu', 'f': 'fV', 'V': 'fV', 'b': 'b', 'c': 'fc', 'O': 'OSU'}
