"""Optimizers: the numbers are those of Keras, and every optimizer of Keras is here or refused."""
from __future__ import annotations

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

from lingpipe.learning import optimizers
from lingpipe.learning.optimizer import Optimizer
from tests.support.learners import TOLERANCE, learner

OPTIMIZERS = [(optimizers.SGD, {}),
              (optimizers.SGD, {'momentum': 0.9, 'nesterov': True}),
              (optimizers.SGD, {'momentum': 0.9}),
              (optimizers.RMSProp, {}),
              (optimizers.RMSProp, {'momentum': 0.9}),
              (optimizers.RMSProp, {'momentum': 0.9, 'centered': True}),
              (optimizers.Adam, {'amsgrad': True}),
              (optimizers.AdamW, {}),
              (optimizers.Nadam, {}),
              (optimizers.Adamax, {}),
              (optimizers.Adadelta, {}),
              (optimizers.Adagrad, {}),
              (optimizers.Adafactor, {}),
              (optimizers.Lion, {}),
              (optimizers.Lamb, {}),
              (optimizers.Ftrl, {'l1_regularization_strength': 0.01,
                                 'l2_shrinkage_regularization_strength': 0.1, 'beta': 0.1}),
              (optimizers.Muon, {}),
              (optimizers.Muon, {'exclude_layers': ('first/kernel',)}),
              (optimizers.ScheduleFreeAdamW, {'warmup_steps': 2}),]


def keras_model():
    """Maps ids [b, 6] by a table of 7 rows, which thus occur often, and two layers to [b, 6, 3]."""
    return keras.Sequential([keras.Input((6,), dtype='int32'), keras.layers.Embedding(7, 5),
                             keras.layers.Dense(4, activation='tanh', name='first'),
                             keras.layers.Dense(3, name='second')])


@pytest.mark.parametrize(('cls', 'values'), OPTIMIZERS,
                         ids=lambda value: getattr(value, '__name__', ''))
def test_every_optimizer_gives_the_numbers_of_train_on_batch_in_keras(cls, values):
    if cls.keras_class is None:
        pytest.skip('this Keras is too old to have it')

    keras.utils.set_random_seed(0)
    model, twin = keras_model(), keras_model()
    decay = {'weight_decay': 0.02,
             **({'adam_weight_decay': 0.02} if cls is optimizers.Muon else {})}
    theirs = cls.keras_class(0.05, **decay, **values)
    model.compile(theirs, 'mse', run_eagerly=True)
    weights = {v.path: tf.Variable(v.numpy()) for v in model.trainable_weights}
    layer = learner(0.05, optimizer=cls.Params(**values), weight_decay=0.02,
                    decay_vectors=True).for_layer('model', weights)

    rng = np.random.default_rng(0)
    for _ in range(3):
        x, y = (rng.integers(0, 6, [8, 6]).astype(np.int32),
                rng.normal(size=[8, 6, 3]).astype(np.float32))
        twin.set_weights([w.numpy() for w in weights.values()])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(keras.losses.mean_squared_error(y, twin(x)))
        gradients = tape.gradient(loss, [v.value for v in twin.trainable_weights])
        assert isinstance(gradients[0], tf.IndexedSlices)
        layer.apply(dict(zip(weights, gradients, strict=True)))
        model.train_on_batch(x, y)

    for variable, weight in zip(model.trainable_weights, weights.values(), strict=True):
        assert np.abs(weight).max() < 10   # This also excludes NaN.
        np.testing.assert_allclose(weight, variable.value, atol=TOLERANCE, err_msg=variable.path)


def test_every_optimizer_of_keras_is_here_or_refused():
    theirs = {cls
              for cls in vars(keras.optimizers).values()
              if inspect.isclass(cls) and issubclass(cls, keras.optimizers.Optimizer)}
    wrappers = {getattr(keras.optimizers, name, None)
                for name in ('LossScaleOptimizer', 'MultiOptimizer')} - {None}
    assert (theirs - wrappers - {keras.optimizers.Optimizer}
            == {cls.keras_class for cls, _ in OPTIMIZERS} - {None})
    for wrapper in wrappers:
        made = type('Wrapper', (Optimizer,), {'keras_class': wrapper})
        sentence = (f'keras.optimizers.{wrapper.__name__} has a method apply of its own, in whose '
                    f'place the Learner')
        with pytest.raises(ValueError, match=sentence):
            learner(optimizer=made.Params())
    missing = type('Newer', (Optimizer,), {})
    with pytest.raises(ValueError, match=r'Keras [\d.]+ has no optimizer Newer; install a newer '
                                         r'Keras, or use another optimizer'):
        learner(optimizer=missing.Params())
