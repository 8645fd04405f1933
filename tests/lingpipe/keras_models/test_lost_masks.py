"""Masks that Keras takes away: from_keras warns where a layer reads one here, and none there."""
from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import lingpipe as lp
from lingpipe.keras_models.graph import graph_of
from lingpipe.keras_models.lost_masks import readers_of_lost_masks
from lingpipe.layers.context import Context


def model(network: Callable[[Any], Any]) -> Any:
    """A model of masked tokens."""
    tokens = keras.Input((4,), name='tokens', dtype='int32')
    table = keras.layers.Embedding(9, 4, mask_zero=True, name='table')
    return keras.Model(tokens, network(table(tokens)))


def attention(name: str, **values: Any) -> Any:
    return keras.layers.MultiHeadAttention(2, 2, name=name, **values)


def dense(x: Any) -> Any:
    return keras.layers.Dense(2, name='out')(x)


def residual(x: Any) -> Any:
    return keras.layers.Add(name='sum')([x, attention('a')(x, x)])


@pytest.mark.parametrize('network, readers', [
    (lambda x: keras.ops.tanh(attention('b')(attention('a')(x, x), x)), ['b']),
    (lambda x: keras.ops.tanh(attention('b')(*[keras.layers.Dropout(0.)(residual(x))] * 2)), ['b']),
    (lambda x: dense(residual(x)), ['out']),   # The loss of the output.
    (lambda x: dense(keras.layers.GRU(2)(residual(x))), []),
    (lambda x: keras.layers.GRU(2)(x) + keras.layers.GRU(2)(attention('a')(x, x)), []),
    (lambda x: keras.ops.tanh(attention('b')(attention('a', dtype='bfloat16')(x, x), x)), []),
    (lambda x: keras.ops.tanh(keras.layers.GroupQueryAttention(2, 2, 1)(
        keras.layers.GroupQueryAttention(2, 2, 1)(x, x), x)), [])])
def test_what_lacks_a_mask_after_an_attention_is_found(network: Any, readers: list[str]) -> None:
    graph = graph_of(model(network), 'model', ['tokens'])
    assert readers_of_lost_masks(graph) == {name: ('table', 'a') for name in readers}


def test_a_mask_that_keras_takes_away_costs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The warned model differs from Keras; the other one has no warning, and does not."""
    tokens = np.array([[1, 2, 0, 0], [3, 4, 5, 0]], np.int32)
    both = model(lambda x: keras.ops.tanh(attention('b')(attention('a')(x, x), x)))
    one = model(lambda x: keras.layers.GRU(2, name='gru')(residual(x)))
    for network, is_warned in (both, True), (one, False):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            params = lp.from_keras(network)
        assert ("Keras takes the mask of 'table' away" in caplog.text) == is_warned
        layers = params.instantiate('model')
        values = layers.fprop(layers.initial_theta(), Context(), tokens=tf.constant(tokens))
        output = values[params.outputs[0]]
        assert np.allclose(output, network(tokens), atol=1e-6) != is_warned
