"""Activations by name: those that are written here are the functions that Keras has."""
from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers.dense import activation_fn


@pytest.mark.parametrize('name, is_approximate', [('gelu', False), ('gelu_tanh', True)])
def test_gelu_has_the_values_and_the_gradient_of_keras(name: str, is_approximate: bool) -> None:
    x = tf.linspace(-4., 4., 97)   # Farther out, 1 - t * t is rounding alone.

    def with_gradient(function: Any) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return y, tape.gradient(y, x)

    result = with_gradient(activation_fn(name))
    expected = with_gradient(lambda x: keras.activations.gelu(x, approximate=is_approximate))
    for ours, theirs in zip(result, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-6)


def test_an_activation_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match="activation='gelu_new' is no activation of Keras; write "
                                         'linear, relu, gelu, gelu_tanh, silu, tanh, sigmoid, or '):
        activation_fn('gelu_new')
