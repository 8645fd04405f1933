"""ArrayInput: examples that are all in memory."""
from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import google_crc32c
import numpy as np
import tensorflow as tf

from lingpipe.input.base import Input
from lingpipe.input.checked_arrays import check_not_masked, check_weights, narrowed
from lingpipe.input.errors import one_sentence
from lingpipe.input.given import GivenParams
from lingpipe.layers.nested import Nested
from lingpipe.wording.keras_words import remedy_for

_CHECKED_BYTES = 1 << 20   # of an array, at a time


class ArrayInput(Input):
    """Arrays in memory. Subclasses override `load`; `of` makes one of arrays that are there."""

    @staticmethod
    def of(arrays: Any, *, batch_size: int, **params: Any) -> GivenArrays.Params:
        """Params of an input of arrays, or of whatever NumPy makes arrays of.

        Args:
          arrays: name -> array with a row for every example, or a pandas DataFrame, whose columns
            have names. A DataFrame in a dict becomes one array [N, columns]. Numbers of float64
            become float32.
          batch_size: examples in a mini-batch.
          **params: further fields of Input.Params; an evaluation has shuffle=False, num_epochs=1.

        Raises:
          ValueError: these are no arrays of one length.
        """
        has_names = isinstance(arrays, Mapping) or hasattr(arrays, 'columns')
        if not has_names or not hasattr(arrays, 'items'):
            remedy = remedy_for(arrays)
            raise ValueError(f'arrays is {type(arrays).__name__}, but must be a dict of name -> '
                             "array, as {'image': images, 'labels': labels}, or a DataFrame"
                             f'{f"; {remedy}" if remedy else ""}.')
        checked = {str(name): _checked(value, f'{name!r}') for name, value in arrays.items()}
        float32 = np.dtype(np.float32)
        given = {name: narrowed(name, array, float32) if array.dtype == np.float64 else array
                 for name, array in checked.items()}
        contents = ', '.join(f'{name} {array.dtype}{list(array.shape)} {_checksum(array):08x}'
                             for name, array in given.items())
        _check_lengths(given, 'ArrayInput.of')
        check_weights(given.get('weight', 1.))
        # No tensor is made of them yet: TensorFlow's devices may not be set up.
        return GivenArrays.Params(batch_size=batch_size, contents=contents, **params).giving(given)

    def load(self) -> Mapping[str, np.ndarray]:
        """The data: by name, arrays whose first dimension counts the examples. Called once.

        Layers compute in the dtype of their inputs, so numbers should be float32.
        """
        raise NotImplementedError(f'{type(self).__name__} has no load')

    def num_examples(self) -> int:
        """The number of rows of the arrays."""
        return int(next(iter(self._arrays.values())).shape[0])

    def read(self, index: tf.Tensor) -> dict[str, Nested]:
        """Returns the rows [n, ...] at index, int64 [n]."""
        return {name: tf.gather(array, index) for name, array in self._arrays.items()}

    @functools.cached_property
    def _arrays(self) -> dict[str, tf.Tensor]:
        """What `load` returned, as tensors.

        Raises:
          ValueError: it is not a dict of arrays of one length.
        """
        name = type(self).__name__
        with one_sentence(f'load of {name}'):
            loaded = self.load()
        if not isinstance(loaded, Mapping):
            raise ValueError(f'load of {name} gives {type(loaded).__name__}, but must give a dict '
                             "of name -> array, as {'image': images, 'label': labels}; return one.")
        if not loaded:
            raise ValueError(f'load of {name} gives no arrays; return a dict of name -> array.')
        arrays = {key: _checked(value, f'{key!r} of load of {name}')
                  for key, value in loaded.items()}
        _check_lengths(arrays, name)
        check_weights(arrays.get('weight', 1.), f"'weight' of load of {name}")
        with tf.device('CPU:0'):
            return {key: tf.convert_to_tensor(array) for key, array in arrays.items()}


class GivenArrays(ArrayInput):
    """Arrays that ArrayInput.of was given."""

    class Params(GivenParams, ArrayInput.Params):
        """The arrays."""

    params: Params

    def load(self) -> Mapping[str, np.ndarray]:
        """The arrays."""
        given: Mapping[str, np.ndarray] = self.params.given
        return given


def _check_lengths(arrays: Mapping[str, np.ndarray], name: str) -> None:
    """Raises ValueError unless the arrays, which the error says are of `name`, are equally long."""
    lengths = {key: len(array) for key, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ', '.join(f'{key} {length}' for key, length in lengths.items())
        raise ValueError(f'the arrays of {name} have different lengths: {listed}; give one row '
                         'to every example.')


def _checksum(array: np.ndarray) -> int:
    """The checksum of all bytes, of which only a few are copied at a time."""
    checksum: int = 0
    if array.dtype.kind == 'O':
        checksum = google_crc32c.value('\0'.join(map(str, array.flat)).encode())
        return checksum
    num_rows = max(1, _CHECKED_BYTES * len(array) // max(1, array.nbytes))
    for start in range(0, len(array), num_rows):
        checksum = google_crc32c.extend(checksum, array[start:start + num_rows].tobytes())
    return checksum


def array_of(value: Any) -> np.ndarray:
    """The value as an array. Bytes stay objects, since NumPy's own bytes lose NULs at their end."""
    if isinstance(value, np.ndarray):
        return value
    array: np.ndarray = np.asarray(value)
    return np.asarray(value, object) if array.dtype.kind == 'S' else array


def _checked(value: Any, what: str) -> np.ndarray:
    """The value as an array of numbers, bools or strings, of one dimension at least.

    Raises:
      ValueError: it is no such array; the message calls it `what`.
    """
    try:
        array = array_of(value)
    except ValueError as error:
        raise ValueError(f'{what} is no array: {error}; give every example the same '
                         'shape.') from error
    check_not_masked(what, value)
    if array.dtype.kind == 'O':
        others = [item for item in array.flat if not isinstance(item, str | bytes)]
        if others:
            raise ValueError(f'{what} is an array of Python objects ({type(others[0]).__name__}), '
                             'but must be of numbers; give it a dtype, and every example the same '
                             'shape.')
    if array.dtype.kind not in 'biufcOSUV':
        raise ValueError(f'{what} is of {array.dtype}, but must be of numbers; convert it first.')
    if array.ndim == 0:
        raise ValueError(f'{what} is one value, {array!r}, but must have a row for every example.')
    return array
