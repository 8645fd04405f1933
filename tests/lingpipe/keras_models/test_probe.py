"""Probe: layers, operations and losses that mix examples, or that no call can repeat."""
from __future__ import annotations

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

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


@pytest.mark.parametrize('operation', [
    lambda x: keras.ops.flip(x), lambda x: keras.ops.roll(x, 1),
    lambda x: keras.ops.sort(x, axis=-2), lambda x: keras.ops.softmax(x, axis=-2),
    lambda x: keras.ops.cumsum(x, axis=-2),
    lambda x: keras.layers.Softmax(axis=-2)(x), lambda x: keras.layers.UnitNormalization(-2)(x)])
def test_an_operation_that_mixes_examples_is_not_given_micro_batches(operation):
    """Only axis=0 was seen: flip without an axis turned each micro-batch round by itself."""
    x = keras.Input([6])
    mixing = lp.from_keras(keras.Model(x, keras.layers.Dense(2)(operation(x)))).instantiate('model')
    with pytest.raises(ValueError, match='KerasLayer needs the whole mini-batch'):
        micro_batches.check_whole(mixing, 2, 1)


def test_operations_that_keep_examples_apart_may_be_split():
    x = keras.Input([6])
    y = keras.ops.stack([keras.ops.flip(x, axis=-1), keras.ops.expand_dims(x, -2)[:, 0]], axis=-2)
    y = keras.layers.Softmax(axis=-2)(y) * keras.ops.reshape(keras.ops.reshape(x, (-1, 3)),
                                                             (-1, 2, 3))[:, :, :1]
    model = keras.Model(x, keras.layers.Flatten()(y))
    micro_batches.check_whole(lp.from_keras(model).instantiate('model'), 2, 1)


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


def others_of_the_batch(labels, x):
    """The in-batch negatives of a contrastive loss."""
    first, second = keras.ops.split(x, 2, axis=-1)
    logits = keras.ops.matmul(first, keras.ops.transpose(second))
    own = keras.ops.arange(keras.ops.shape(logits)[0])
    return keras.losses.sparse_categorical_crossentropy(own, logits, from_logits=True)


def of_the_same_class(labels, x):
    """A supervised contrastive loss, which takes the number of the class."""
    is_same = keras.ops.equal(labels[:, None], labels[None])
    return keras.ops.mean(keras.ops.where(is_same, 1., -1.) * (x @ keras.ops.transpose(x)), 1)


def less_the_mean(labels, x):
    return keras.ops.square(labels - keras.ops.mean(x, axis=0))


def of_ones_own_class(labels, x):
    """Broadcasting mixes examples if this is given labels of the shape of x."""
    wanted = keras.ops.one_hot(keras.ops.cast(labels, 'int32'), 5)
    return -keras.ops.sum(wanted * keras.ops.log(x), -1)


def of_what_is_positive(labels, x):
    return tf.boolean_mask(keras.ops.square(labels - x), labels > 0)


def noisy(labels, x):
    return keras.ops.mean(labels - x * keras.random.uniform(keras.ops.shape(x)), -1)


def unusual(labels, x):
    return {'impossible': labels}[3]


@pytest.mark.parametrize(('loss', 'channels', 'is_mixing'), [
    (others_of_the_batch, 6, True), (of_the_same_class, 4, True), (less_the_mean, 1, True),
    (keras.losses.CosineSimilarity(axis=0), 3, True), (keras.losses.Circle(), 4, True),
    (of_ones_own_class, 5, False), (of_what_is_positive, 3, False), (noisy, 3, False),
    (unusual, 3, False), (keras.losses.SparseCategoricalCrossentropy(), 5, False),
    (keras.losses.Dice(axis=1), 5, False)])
def test_a_loss_or_metric_that_compares_examples_is_not_given_micro_batches(
        loss, channels, is_mixing):
    """It compared those of a micro-batch, and the copies that fill up an evaluation among them."""
    model = keras.Sequential([keras.Input([6]), keras.layers.Dense(channels)])
    uses = [{'loss': loss}]
    if not isinstance(loss, keras.losses.Loss):
        serializable(loss)
        uses.append({'loss': 'mse', 'weighted_metrics': [loss]})
    for compiled in uses:
        model.compile('sgd', **compiled)
        made = lp.from_keras(model).instantiate('model')
        micro_batches.check_whole(made, 1, 1)
        if is_mixing:
            with pytest.raises(ValueError, match='model/loss: KerasLoss needs the whole mini-batch'
                                                 '.*set both to 1, or compile the Keras model wit'):
                micro_batches.check_whole(made, 2, 1)
        else:
            micro_batches.check_whole(made, 2, 1)


@serializable
class Penalised(keras.layers.Layer):
    def __init__(self, is_sum, **config):
        super().__init__(**config)
        self.is_sum = is_sum

    def build(self, shape):
        self.factor = self.add_weight(name='factor', shape=[6], regularizer='l2')

    def call(self, inputs):
        reduce = keras.ops.sum if self.is_sum else keras.ops.mean
        self.add_loss(reduce(keras.ops.square(inputs)))
        return inputs * self.factor

    def get_config(self):
        return {**super().get_config(), 'is_sum': self.is_sum}


@pytest.mark.parametrize('is_sum', [True, False])
def test_a_sum_over_examples_that_a_layer_adds_is_warned_of(is_sum, caplog):
    """It was divided by M without a word."""
    with caplog.at_level('WARNING', 'absl'):
        network(Penalised(is_sum, name='penalised'))
    sentence = "the layer 'penalised' of the Keras model adds a loss that grows with the number of "
    assert (sentence in caplog.text) == is_sum
