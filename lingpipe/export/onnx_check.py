"""ONNX check: whether an ONNX model computes what the network computes, on random examples.

tf2onnx writes some operations as ones that give other numbers, such as the division of negative
whole numbers and resizing by areas, and some models that no runtime takes. Neither its own checks
nor those of the package onnx find that out.
"""
from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from lingpipe.process.error_text import sentence

_NUM_EXAMPLES = 2
_ANY_LENGTH = 4      # of a dimension that varies
_TOLERANCE = 1e-2    # of the largest number: roundings are smaller by far
_MOST_WRONG = 1e-2   # of all numbers: a rounding may change the largest of two equal ones


def check_outputs(path: str, inputs: Mapping[str, tf.TensorSpec],
                  network: Callable[..., Mapping[str, tf.Tensor]]) -> None:
    """Compares the outputs of an ONNX model with those of the network, if there is a runtime.

    Args:
      path: of the model.
      inputs: name -> spec [None, ...].
      network: gives the outputs by their names in the model.

    Raises:
      ValueError: the runtime cannot run the model, or an output is another one.
    """
    try:
        runtime: Any = importlib.import_module('onnxruntime')
    except ImportError:
        logging.info('onnxruntime is not installed, so that the outputs of the ONNX model are not '
                     'compared with those of the network')
        return
    examples = {name: _examples(spec) for name, spec in inputs.items()}
    try:
        expected = network(*map(tf.constant, examples.values()))
    except Exception as error:   # A layer is anyone's code, and may take no random numbers.
        logging.warning('the outputs of the ONNX model are not compared with those of the network, '
                        'which takes no random examples: %s', sentence(error))
        return

    names = list(expected)
    try:
        session = runtime.InferenceSession(path)
        found = dict(zip(names, session.run(names, examples), strict=True))
    except Exception as error:   # onnxruntime has a class of errors for each kind.
        raise ValueError(f'onnxruntime cannot run the model that tf2onnx made of the network: '
                         f'{sentence(error)}; write a saved_model.') from error
    for name in names:
        _check_output(name, found[name], expected[name].numpy())


def _examples(spec: tf.TensorSpec) -> np.ndarray:
    """Random examples: normal numbers, and whole ones and bools that are 0 or 1."""
    shape = [_NUM_EXAMPLES, *(size or _ANY_LENGTH for size in spec.shape[1:])]
    rng = np.random.default_rng(0)
    if spec.dtype.is_floating:
        return rng.normal(size=shape).astype(spec.dtype.as_numpy_dtype)
    return rng.integers(0, 2, shape).astype(spec.dtype.as_numpy_dtype)


def _check_output(name: str, found: np.ndarray, expected: np.ndarray) -> None:
    """Raises ValueError if an output is another one than that of the network."""
    if expected.dtype.kind not in 'fiub':
        return
    numbers, wanted = found.astype(np.float64), expected.astype(np.float64)
    is_finite = np.isfinite(wanted)
    largest = float(np.max(np.abs(wanted[is_finite]), initial=0.))
    tolerance = _TOLERANCE * largest if expected.dtype.kind == 'f' else 0.
    is_wrong = ~np.isclose(numbers, wanted, rtol=0., atol=tolerance, equal_nan=True)
    if np.mean(is_wrong) > _MOST_WRONG:
        difference = float(np.nanmax(np.abs(numbers - wanted)[is_finite], initial=0.))
        raise ValueError(
            f'the ONNX model that tf2onnx made computes something else than the network: the '
            f'output {name} differs by up to {difference:.3g}, where numbers are up to '
            f'{largest:.3g}; write a saved_model, or replace the operation that differs.')
