"""KerasLayers of a network find the shapes of what they read."""
from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lingpipe.input import ArrayInput
from lingpipe.layers import KerasLayer, Repeat, Sequential
from lingpipe.layers.keras_shapes import are_missing, with_shapes
from lingpipe.learning import learning_rates
from lingpipe.learning.learner import Learner
from lingpipe.training.experiment import Experiment
from lingpipe.training.problem import Problem

WORDS = [{'x': tf.TensorSpec([2, time], tf.int32)} for time in (5, 7)]


def network(*layers: Any) -> Any:
    """A network of layers, of Keras or of ours."""
    return Sequential.Params(name='net', layers=tuple(
        KerasLayer.Params(layer=layer) if isinstance(layer, keras.Layer) else layer
        for layer in layers))


def shapes(params: Any, specs: Any) -> list[Any]:
    """The shapes that the layers of a network have found."""
    made = with_shapes(params, specs).instantiate()
    return [dict(layer.params.input_shapes) for layer in made.layers()
            if isinstance(layer, KerasLayer)]


def test_shapes_and_dtypes_come_from_the_input_and_from_the_layers_before() -> None:
    body = KerasLayer.Params(layer=keras.layers.LSTM(6, return_sequences=True))
    params = network(
        keras.layers.Embedding(9, 6, mask_zero=True), Repeat.Params(times=2, body=body),
        keras.layers.GlobalAveragePooling1D(), network(keras.layers.Dense(3)).set(name='inner'),
        KerasLayer.Params(layer=keras.layers.Concatenate(), reads={'x_0': 'x', 'x_1': 'x'}))
    assert are_missing(params)
    several = (None, 6)    # Mini-batches of 5 positions and of 7.
    assert shapes(params, WORDS) == [
        {'x': (None,)}, {'x': several}, {'x': several}, {'x': several}, {'x': (6,)},
        {'x_0': (3,), 'x_1': (3,)}]
    filled = with_shapes(params, WORDS)
    assert filled.layers[0].input_dtypes == {'x': 'int32'}
    assert are_missing(params) and not are_missing(filled)


def test_shapes_that_are_given_stay() -> None:
    params = network(KerasLayer.Params(layer=keras.layers.Dense(3), input_shape=(4,)))
    assert not are_missing(params)
    assert not with_shapes(params, WORDS).layers[0].input_shapes


@pytest.mark.parametrize(('layers', 'error'), [
    ([KerasLayer.Params(layer=keras.layers.Dense(3), reads={'x': 'image'})],
     r"net/keraslayer_0: the shape of x, which Dense reads, is not known, since neither the input "
     r"nor a layer before it gives a tensor 'image' \(there are x\); name another value in reads"),
    ([keras.layers.Dense(3), keras.layers.Conv2D(3, 3)],
     r'net/keraslayer_1: Keras cannot build Conv2D .* for examples of \[3\]')])
def test_a_shape_that_cannot_be_known_is_told_in_one_sentence(layers: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        with_shapes(network(*layers), [{'x': tf.TensorSpec([2, 4])}])


def test_an_experiment_gives_the_shapes_of_its_input_and_its_params_stay_as_they_are() -> None:
    params = Experiment.Params(
        task=Problem.Params(
            model=network(keras.layers.Dense(3)),
            learner=Learner.Params(learning_rate=learning_rates.Constant.Params(rate=0.1))),
        train_input=ArrayInput.of({'x': np.zeros([8, 4], np.float32)}, batch_size=2))
    experiment: Experiment = params.instantiate()
    assert [weight.shape for weight in experiment.task.network.weights()] == [(4, 3), (3,)]
    assert not experiment.params.task.model.layers[0].input_shapes
