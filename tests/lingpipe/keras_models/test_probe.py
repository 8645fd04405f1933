"""Probe: layers of users that let examples see each other, or that no call can repeat."""
from __future__ import annotations

import itertools

import keras
import numpy as np
import pytest

import lingpipe as lp
from lingpipe.pipeline.planning import micro_batches
from lingpipe.training import resumption

serializable = keras.saving.register_keras_serializable('lingpipe_probe')


@serializable
class LessTheMean(keras.layers.Layer):
    def call(self, inputs):
        return inputs - keras.ops.mean(inputs, axis=0, keepdims=True)


@serializable
class Noisy(keras.layers.Layer):
    def __init__(self, **config):
        super().__init__(**config)
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, inputs, training=False):
        return inputs + keras.random.normal(keras.ops.shape(inputs), seed=self.seeds)


@serializable
class Block(keras.layers.Layer):
    def __init__(self, **config):
        super().__init__(**config)
        self.dense = keras.layers.Dense(6)
        self.norm = keras.layers.BatchNormalization()
        self.dropout = keras.layers.Dropout(0.5, seed=1)

    def build(self, shape):
        self.dense.build(shape)
        self.norm.build(shape)

    def call(self, inputs, training=False):
        return self.dropout(self.norm(self.dense(inputs), training=training), training=training)


@serializable
class Counted(keras.layers.Layer):
    numbers = itertools.count()

    def call(self, inputs):
        return inputs * (1. + next(self.numbers))


def network(layer):
    model = keras.Sequential([keras.Input([6]), layer, keras.layers.Dense(2)])
    model.compile('sgd', 'mse')
    before = [variable.numpy() for variable in model.variables]
    made = lp.from_keras(model)
    for value, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(value, variable)
    return made.instantiate('model')


def test_a_layer_that_mixes_examples_is_not_given_micro_batches():
    """It saw the examples of a micro-batch, and trained to other weights without a word."""
    mixing = network(LessTheMean())
    micro_batches.check_whole(mixing, 1, 1)
    with pytest.raises(ValueError, match='model/less_the_mean: KerasLayer needs the whole mini-'
                                         'batch, .*set both to 1'):
        micro_batches.check_whole(mixing, 2, 1)


@pytest.mark.parametrize('make', [Noisy, Block])
def test_random_numbers_and_moments_do_not_count(make):
    micro_batches.check_whole(network(make()), 2, 1)


def test_a_layer_with_python_that_changes_is_refused():
    """It was traced once for each cell and micro-batch, so that weights depended on K."""
    with pytest.raises(ValueError, match="'counted' .* the same call gives other numbers each "):
        network(Counted())


@serializable
class Gated(keras.layers.Layer):
    """Mixes by a factor that begins with 0, in an inner layer, and only in training."""

    def __init__(self, **config):
        super().__init__(**config)
        self.inner = LessTheMeanInTraining()

    def build(self, shape):
        self.factor = self.add_weight(name='factor', shape=[], initializer='zeros')

    def call(self, inputs):
        return inputs + self.factor * self.inner(inputs)


@serializable
class LessTheMeanInTraining(LessTheMean):
    def call(self, inputs, training=False):
        self.add_loss(keras.ops.mean(inputs))
        return super().call(inputs) if training else inputs


def test_mixing_is_found_wherever_it_is_and_whatever_the_weights_are():
    model = keras.Sequential([keras.layers.Input([6]), Gated(), keras.layers.Dense(2)])
    model.compile('sgd', 'mse')
    gated = lp.from_keras(model).layers[0]
    assert gated.mixes_examples and not model.losses
    gated.mixes_examples = False   # A run may do so, and may go on with another finding.
    assert resumption.MAY_CHANGE.fullmatch('task.model.layers[0].mixes_examples')
    assert not resumption.MAY_CHANGE.fullmatch('task.model.layers[0].averages_state')
