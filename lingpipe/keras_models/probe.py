"""Probe: whether a layer or loss computes each example on its own, found out by calling it.

The code of a user's layer cannot tell, nor can the arguments of an operation of Keras, whose axis
may be None. So a layer is called with a few examples, again with all but the first of them changed,
and again with all but the last: what comes out for that one must stay as it is. Nothing that a call
assigns, draws or adds to its losses stays. The weights differ a little from the layer's own, since
a branch that begins with a factor of 0 would hide what it does.

A loss is called with a few examples, and again with the same ones in two parts, which must give the
same values. Which labels it takes is not known either, so it gets all that it could take.
"""
from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lingpipe.layers.keras_arguments import KerasArguments
from lingpipe.layers.keras_building import inner_layers

_NUM_EXAMPLES = 5   # What a layer folds into its examples should have another length.
_FIRST, _LAST = 0, _NUM_EXAMPLES - 1
_ANY_LENGTH = 4     # of a dimension that varies
_MOST_LENGTH = 1024            # of a dimension but the last: attention takes its square
_MOST_NUMBERS = 2 ** 20        # in an example
_MOST_WEIGHTS = 2 ** 24        # that are changed; more keep their values


def mixes_when_called(operation: keras.Operation, arguments: KerasArguments,
                      tensors: Mapping[str, keras.KerasTensor]) -> bool:
    """Whether the result for an example depends on others; False if it cannot be found out.

    It is not found out for layers with a BatchNormalization, which mixes examples as it should, and
    for very large examples.

    Args:
      operation: a layer or operation of Keras that has its values.
      arguments: those of its call.
      tensors: the name of a tensor among them -> what it is like.

    Raises:
      ValueError: the same call gives other numbers each time.
    """
    has_moments = any(isinstance(layer, keras.layers.BatchNormalization)
                      for layer in inner_layers(operation))
    if not tf.executing_eagerly() or has_moments or any(map(_is_large, tensors.values())):
        return False
    training = {'training': True} if isinstance(operation, keras.layers.Layer) else {}

    def outputs(kept: int | None = None) -> list[np.ndarray]:
        """The outputs of all examples, all but one of which are changed unless `kept` is None."""
        examples = {name: _examples(tensor, kept) for name, tensor in tensors.items()}
        positional, named = arguments.bound(examples)
        with keras.StatelessScope(state_mapping=weights):
            found = keras.tree.flatten(operation(*positional, **{**training, **named}))
        return [keras.ops.convert_to_numpy(output).astype(np.float64)
                for output in found if output.shape[:1] == (_NUM_EXAMPLES,)]

    try:
        weights = _other_weights(operation)
        whole, again = outputs(), outputs()
        changed_by_kept = {kept: outputs(kept) for kept in (_FIRST, _LAST)}
    except Exception:   # A layer is anyone's code, and may want other examples.
        return False
    if not _are_alike(whole, again):
        raise ValueError('the same call gives other numbers each time, as by tf.random, np.random '
                         'or counting; draw random numbers by keras.random with a '
                         'keras.random.SeedGenerator of the layer, and count in a weight')
    return not all(_are_alike([output[kept] for output in whole],
                              [output[kept] for output in changed])
                   for kept, changed in changed_by_kept.items())


def adds_a_sum_when_called(operation: keras.Operation, arguments: KerasArguments,
                           tensors: Mapping[str, keras.KerasTensor]) -> bool:
    """Whether a loss that a layer adds doubles if each example is there twice; False if unknown.

    Args:
      operation, arguments, tensors: those of mixes_when_called.
    """
    if not tf.executing_eagerly() or any(map(_is_large, tensors.values())):
        return False

    def added(repeats: int) -> list[float]:
        examples = {name: np.tile(_examples(tensor), [repeats, *[1] * len(tensor.shape[1:])])
                    for name, tensor in tensors.items()}
        positional, named = arguments.bound(examples)
        with keras.StatelessScope(state_mapping=weights, collect_losses=True):
            operation(*positional, **{'training': True, **named})
            return [float(keras.ops.sum(loss)) for loss in operation.losses]

    try:
        weights = _other_weights(operation)
        once, twice = added(1), added(2)
    except Exception:   # A layer is anyone's code, and may want other examples.
        return False
    return len(once) == len(twice) and any(
        np.isclose(double, 2 * single, 1e-3) and not np.isclose(double, single, 1e-3)
        for single, double in zip(once, twice, strict=True))


def loss_mixes_when_called(loss: Callable[[Any, Any], Any], output: keras.KerasTensor) -> bool:
    """Whether a loss or metric compares examples; False if it cannot be found out.

    It is found out with the labels that it takes, and not for very large outputs. With labels of a
    wrong shape, broadcasting may mix examples, so it compares them only if it does with all labels.

    Args:
      loss: a function of labels and predictions, which gives a value for each example.
      output: the predictions that it is given.
    """
    if not tf.executing_eagerly() or _is_large(output):
        return False
    shape = [_NUM_EXAMPLES, *(size or _ANY_LENGTH for size in output.shape[1:])]
    rng = np.random.default_rng(0)
    predictions = rng.uniform(0.1, 0.9, shape).astype(np.float32)
    parts = (slice(None), slice(None), slice(0, 2), slice(2, None))

    def values(labels: np.ndarray) -> list[np.ndarray]:
        """What it gives for each of the parts, [b, ...]; random numbers go on from part to part."""
        with keras.StatelessScope(), warnings.catch_warnings():
            warnings.simplefilter('ignore')   # Of shapes that Keras finds strange.
            losses = [keras.ops.convert_to_numpy(loss(tf.constant(labels[part]),
                                                      tf.constant(predictions[part])))
                      for part in parts]
        return [array.reshape(len(array), -1) for array in losses]

    findings: list[bool] = []
    for labels in _labels(rng, shape):
        try:
            whole, again, first, others = values(labels)
            apart = np.concatenate([first, others])
        except Exception:   # A loss is anyone's code. It may want other labels, or give one number.
            continue
        if np.isfinite(whole).all() and _are_alike([whole], [again]):
            # A loss may put its values into another order.
            findings.append(whole.shape != apart.shape or not _are_alike(
                [np.sort(whole, axis=None)], [np.sort(apart, axis=None)]))
    return bool(findings) and all(findings)


def _labels(rng: np.random.Generator, shape: list[int]) -> Iterator[np.ndarray]:
    """Labels that a loss may take for predictions of a shape: like them, or numbers of classes."""
    yield rng.integers(0, 2, shape).astype(np.float32)
    if len(shape) > 1:
        classes = np.arange(np.prod(shape[:-1])).reshape(shape[:-1]) % min(shape[-1], 3)
        yield classes.astype(np.float32)
        yield classes[..., np.newaxis].astype(np.float32)


def _is_large(tensor: keras.KerasTensor) -> bool:
    """Whether calling a layer with such examples could take much memory."""
    lengths = [size or _ANY_LENGTH for size in tensor.shape[1:]]
    return max(lengths[:-1], default=0) > _MOST_LENGTH or np.prod(lengths) > _MOST_NUMBERS


def _examples(tensor: keras.KerasTensor, kept: int | None = None) -> np.ndarray:
    """A few examples; if the first or the last is `kept`, it is the same and the others are not."""
    shape = [size or _ANY_LENGTH for size in tensor.shape[1:]]
    first, some, others = (np.random.default_rng(seed).normal(size=[number, *shape])
                           for seed, number in ((0, 1), (1, _NUM_EXAMPLES - 1),
                                                (2, _NUM_EXAMPLES - 1)))
    examples = {None: [first, some], _FIRST: [first, 9 * others], _LAST: [9 * others, some[-1:]]}
    chosen = np.concatenate(examples[kept])
    is_float = tf.as_dtype(tensor.dtype).is_floating
    return chosen.astype(tensor.dtype) if is_float else (chosen > 0).astype(tensor.dtype)


def _other_weights(operation: keras.Operation) -> list[tuple[keras.Variable, tf.Tensor]]:
    """Each weight that trains, with other values than its own; [] if there are very many."""
    weights = [weight for weight in getattr(operation, 'trainable_weights', [])
               if tf.as_dtype(weight.dtype).is_floating]
    if sum(int(np.prod(weight.shape)) for weight in weights) > _MOST_WEIGHTS:
        return []
    rng = np.random.default_rng(3)
    return [(weight, tf.convert_to_tensor(weight) + tf.cast(
                rng.normal(scale=0.3, size=tuple(weight.shape)), weight.dtype))
            for weight in weights]


def _are_alike(some: list[np.ndarray], others: list[np.ndarray]) -> bool:
    return all(np.allclose(one, other, rtol=1e-3, atol=1e-6, equal_nan=True)
               for one, other in zip(some, others, strict=True))
