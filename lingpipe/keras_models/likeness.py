"""Likeness: whether what Keras makes of a configuration is what the configuration was taken of.

A configuration holds what __init__ was given, at best. What was set later, what get_config forgot,
and a function that only has the name of one of Keras are lost without a word, so they are looked
for here: in the weights, and in attributes that are functions or, of classes that are not Keras'
own, plain values. Layers of Keras within others are compared by their own configurations.
"""
from __future__ import annotations

import functools
from collections.abc import Collection
from types import FunctionType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lingpipe.layers.keras_building import inner_layers
from lingpipe.wording.values import show

_SCALARS = (bool, int, float, complex, str, bytes, type(None), np.generic, np.ndarray)


def check_alike(given: keras.Operation, remade: keras.Operation) -> None:
    """Raises ValueError unless a layer or operation and one made of its configuration are alike."""
    for inner in inner_layers(given):
        trained = [weight.name for weight in inner.weights if weight.trainable]
        if not inner.trainable and trained:
            raise ValueError(f'{inner.name!r} is frozen and its {trained[0]} is not, so that Keras '
                             'trains nothing of it; set trainable of both alike')
    weights, others = getattr(given, 'weights', []), getattr(remade, 'weights', [])
    if others:   # An adapted Normalization has none: its numbers are constants.
        for weight, other in zip(weights, others, strict=True):
            _check_weights(weight, other)

    pairs = zip(inner_layers(given) or [given], inner_layers(remade) or [remade], strict=False)
    for one, other in pairs:
        text = difference(one, other)
        if not text and one is not given:   # The configuration of this one is what was taken.
            text = _difference_of_configurations(one, other)
        if text:
            raise ValueError(f'{type(one).__name__} is not what its configuration says: {text}; '
                             'write all of it into get_config, and register functions of your '
                             'own with @keras.saving.register_keras_serializable()')


def _check_weights(weight: keras.Variable, other: keras.Variable) -> None:
    """Raises ValueError unless two variables are trained in the same way."""
    for name in 'trainable', 'regularizer', 'constraint':
        values = getattr(weight, name), getattr(other, name)
        if _described(values[0]) != _described(values[1]):
            raise ValueError(f'{weight.name} has {name}={_described(values[0])}, but made from its '
                             f'configuration {_described(values[1])}, since a configuration holds '
                             'what __init__ was given; set it there, or in build of a class of '
                             'your own')


def _described(value: Any) -> str:
    """A text that two regularizers or constraints that do the same have in common."""
    has_config = hasattr(value, 'get_config')
    return f'{type(value).__name__}({value.get_config()})' if has_config else show(value)


def difference(given: Any, remade: Any) -> str:
    """Says which attribute of an object differs from that of one made of its configuration.

    Functions must give the same numbers and, in classes that are not Keras' own, plain values must
    be equal. It is '' if there is no difference.
    """
    names = (vars(given).keys() & vars(remade).keys()) - _names_of_keras()
    for name in sorted(names):
        value, other = vars(given)[name], vars(remade)[name]
        if isinstance(value, FunctionType) or isinstance(other, FunctionType):
            is_like = value is other or _give_the_same(value, other)
        else:
            is_like = is_of_keras(type(given)) or not _is_plain(value) or _equal(value, other)
        if not is_like:
            return f'{name} is {_shown(value)}, but made from its configuration {_shown(other)}'
    return ''


def _difference_of_configurations(given: Any, remade: Any) -> str:
    """Says in which argument of its class a layer of Keras differs from one made again; or ''.

    A layer of somebody's own makes the layers in it, which may have been changed afterwards, as the
    rate of a Dropout.
    """
    if not is_of_keras(type(given)) or type(given) is not type(remade):
        return ''
    try:
        value, other = given.get_config(), remade.get_config()
    except Exception:   # A layer in it may be anyone's code.
        return ''
    is_norm = isinstance(given, keras.layers.BatchNormalization)   # The weights of others tell.
    left_out = {'name', 'seed'} if is_norm else {'name', 'seed', 'trainable'}
    for name in sorted((value.keys() & other.keys()) - left_out):
        is_compared = name == 'dtype' or _is_plain(value[name])
        if is_compared and not _equal(value[name], other[name]):
            return (f'{name} is {_shown(value[name])}, but made from its configuration '
                    f'{_shown(other[name])}')
    return ''


def _give_the_same(function: Any, other: Any) -> bool:
    """Whether two functions give the same numbers, as keras.ops.relu and keras.activations.relu."""
    x = np.linspace(-6, 6, 64, dtype=np.float32).reshape(8, 8)
    try:
        with tf.init_scope():
            result, expected = (np.asarray(one(tf.constant(x))) for one in (function, other))
    except Exception:   # They are anyone's code, and may take something else.
        return False
    return result.shape == expected.shape and np.allclose(
        result, expected, 1e-6, 1e-6, equal_nan=True)


def is_of_keras(code: Any) -> bool:
    """Whether a class or function is one of Keras' own."""
    return str(getattr(code, '__module__', '')).partition('.')[0] == 'keras'


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return isinstance(value, _SCALARS)


def _equal(value: Any, other: Any) -> bool:
    if isinstance(value, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(value) == len(other) and all(map(_equal, value, other))
    if isinstance(value, float) and value != value:
        return isinstance(other, float) and other != other
    return bool(np.array_equal(value, other))


def _shown(value: Any) -> str:
    if isinstance(value, FunctionType):
        return f'{value.__module__}.{value.__qualname__}'
    return show(value)


@functools.cache
def _names_of_keras() -> Collection[str]:
    """The attributes that Keras gives every layer once it is called."""
    layer = keras.layers.Identity()
    layer(keras.KerasTensor((None, 1)))
    return {*vars(layer), 'name', '_name', '_path'}
