"""Probe: whether a user's Keras layer computes each example by itself, found out by calling it.

Its code cannot tell. So it is called with a few examples, and again with all but the first of them
changed: what comes out for the first must stay as it is. Its variables are set back each time, so
that random numbers of a keras.random.SeedGenerator come again.
"""
from __future__ import annotations

import inspect
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from lingpipe.layers.keras_arguments import KerasArguments
from lingpipe.layers.keras_building import inner_layers

_NUM_EXAMPLES = 3
_ANY_LENGTH = 4   # of a dimension that varies


def mixes_examples(operation: keras.Operation, arguments: KerasArguments,
                   tensors: Mapping[str, keras.KerasTensor]) -> bool:
    """Whether the result for an example depends on others; False if it cannot be found out.

    Layers with a BatchNormalization are called as in an evaluation, since that one may mix.

    Args:
      operation: a layer or operation of Keras that has its values.
      arguments: those of its call.
      tensors: the name of a tensor among them -> what it is like.

    Raises:
      ValueError: the same call gives other numbers each time.
    """
    if not tf.executing_eagerly():
        return False
    has_moments = any(isinstance(layer, keras.layers.BatchNormalization)
                      for layer in inner_layers(operation))
    takes_training = 'training' in inspect.signature(operation.call).parameters
    training = {'training': not has_moments} if takes_training else {}

    def outputs(examples: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        positional, named = arguments.bound(examples)
        found = keras.tree.flatten(operation(*positional, **{**training, **named}))
        return [keras.ops.convert_to_numpy(output)[:1].astype(np.float64) for output in found]

    variables = list(getattr(operation, 'variables', []))
    try:
        values = [variable.numpy() for variable in variables]
        results = []
        for changed in (False, False, True):
            try:
                results.append(outputs({name: _examples(tensor, changed)
                                        for name, tensor in tensors.items()}))
            finally:
                for variable, value in zip(variables, values, strict=True):
                    variable.assign(value)
    except Exception:   # A layer is anyone's code, and may want other examples.
        return False
    first, again, other = results
    if not _are_alike(first, again):
        raise ValueError('the same call gives other numbers each time, but its Python code runs '
                         'only when it is traced; draw random numbers by keras.random with a '
                         'keras.random.SeedGenerator of the layer, and count in a weight')
    return not _are_alike(first, other)


def _examples(tensor: keras.KerasTensor, changed: bool) -> np.ndarray:
    """A few examples; if `changed`, the first one is the same and the others are not."""
    shape = [size or _ANY_LENGTH for size in tensor.shape[1:]]
    first, one, other = (np.random.default_rng(seed).normal(size=[number, *shape])
                         for seed, number in ((0, 1), (1, _NUM_EXAMPLES - 1),
                                              (2, _NUM_EXAMPLES - 1)))
    examples = np.concatenate([first, 9 * other if changed else one])
    is_float = tf.as_dtype(tensor.dtype).is_floating
    return examples.astype(tensor.dtype) if is_float else (examples > 0).astype(tensor.dtype)


def _are_alike(some: list[np.ndarray], others: list[np.ndarray]) -> bool:
    return all(np.allclose(one, other, rtol=1e-3, atol=1e-6, equal_nan=True)
               for one, other in zip(some, others, strict=True))
