"""Keras initial values: what the weights of a Keras layer begin with."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from lingpipe.layers.base import Layer
from lingpipe.layers.weight import Initializer

_VALUES = '_initial_values'   # The name of an attribute of Params that is no field.


class ParamsWithValues(Layer.Params):
    """Params of a layer whose weights may begin with arrays, which no text of Params holds."""

    @property
    def initial_values(self) -> tuple[Any, ...] | None:
        """The arrays with which the weights begin, in the order of the Keras layer's weights.

        They are no part of the text, and two Params that differ in nothing else are equal.
        """
        values: tuple[Any, ...] | None = vars(self).get(_VALUES)
        return values

    def with_values(self, values: tuple[Any, ...] | None) -> Self:
        """Sets `initial_values`; returns the Params."""
        vars(self)[_VALUES] = values
        return self

    def copy(self) -> Self:
        """A deep copy, not frozen, with no parent; it shares the initial values."""
        return super().copy().with_values(self.initial_values)

    __copy__ = copy

    def __reduce__(self) -> Any:
        return _with_values, (super().__reduce__(), self.initial_values)


def _with_values(reduced: Any, values: tuple[Any, ...] | None) -> ParamsWithValues:
    """Makes Params of what pickle keeps of them: what Params.__reduce__ returns, and the values."""
    restore, arguments = reduced
    params: ParamsWithValues = restore(*arguments)
    return params.with_values(values)


def values_of(keras_layer: keras.layers.Layer) -> tuple[np.ndarray, ...] | None:
    """The values of a Keras layer's weights as arrays; None if it is not built or has none yet."""
    weights = getattr(keras_layer, 'weights', [])
    if not getattr(keras_layer, 'built', True) or any(weight.value is None for weight in weights):
        return None
    return tuple(weight.numpy() for weight in weights)


def initializers_of(variables: Sequence[keras.Variable]) -> list[Initializer]:
    """What makes the first value of each Keras variable, which has no memory."""
    return [_initializer_of(variable) for variable in variables]


def initializers_from(values: Sequence[Any] | None, variables: Sequence[keras.Variable], path: str,
                      class_name: str) -> list[Initializer]:
    """What gives each Keras variable its value; without values, what refuses to.

    Args:
      values: arrays, in the order of the variables.
      variables: of the Keras layer, as its configuration makes it again.
      path: of the KerasLayer, for errors.
      class_name: of the Keras layer, for errors.

    Raises:
      ValueError: the values are those of other weights.
    """
    if values is None:
        refusal = _refusing(f'{path}: the weights begin with the values of a Keras layer, which no '
                            'text of Params holds; make the Params from the Keras layer again, or '
                            'set has_values=False.')
        return [refusal] * len(variables)
    shapes, own_shapes = ([tuple(one.shape) for one in some] for some in (values, variables))
    if shapes != own_shapes:
        raise ValueError(f'{path}: a {class_name} made from its configuration has weights of '
                         f'{own_shapes}, but the Keras layer itself has {shapes}; correct its '
                         'get_config.')
    return [_constant(value) for value in values]


class _FromFunction(keras.initializers.Initializer):  # type: ignore[misc]  # Keras has no types.
    """A plain function as an initializer."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def __call__(self, shape: Sequence[int], dtype: str | None = None) -> tf.Tensor:
        return self._function(shape, dtype=dtype)

    def get_config(self) -> dict[str, Any]:
        return {}


def _initializer_of(variable: keras.Variable) -> keras.initializers.Initializer:
    """The initializer of a Keras variable without memory, or else one that gives its value."""
    initializer = variable._initializer  # Keras has no public way to it.
    if isinstance(initializer, keras.initializers.Initializer):
        return initializer
    if callable(initializer):
        return _FromFunction(initializer)
    return _constant(variable.numpy())


def _constant(value: Any) -> keras.initializers.Initializer:
    """The initializer that gives this array."""
    return _FromFunction(lambda shape, dtype=None: tf.constant(value, dtype))


def _refusing(sentence: str) -> keras.initializers.Initializer:
    """The initializer that raises ValueError with this sentence."""
    def refuse(shape: Any, dtype: Any = None) -> Any:
        raise ValueError(sentence)
    return _FromFunction(refuse)
