"""Update check: an optimizer of a user's own whose updates cannot be repeated is refused."""
from __future__ import annotations

import keras
import pytest
import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.learning.optimizer import Optimizer
from tests.support.learners import learner


class Noisy(keras.optimizers.SGD):
    """Adds numbers that TensorFlow draws."""

    def update_step(self, gradient, variable, learning_rate):
        noise = tf.random.normal(tf.shape(gradient))
        super().update_step(gradient + noise, variable, learning_rate)


class NoisyInABranch(keras.optimizers.SGD):
    """Adds them in half of the updates."""

    def update_step(self, gradient, variable, learning_rate):
        noise = tf.cond(self.iterations.value % 2 == 0,
                        lambda: tf.random.uniform(tf.shape(gradient)),
                        lambda: tf.zeros_like(gradient))
        super().update_step(gradient + noise, variable, learning_rate)


class Seeded(keras.optimizers.SGD):
    """Adds numbers of a generator, whose state is no slot."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.generator = keras.random.SeedGenerator(0)

    def update_step(self, gradient, variable, learning_rate):
        noise = keras.random.normal(gradient.shape, seed=self.generator)
        super().update_step(gradient + noise, variable, learning_rate)


class OfADataset(keras.optimizers.SGD):
    """Takes a number of a dataset in every update, and no checkpoint knows how many it took."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.numbers = iter(tf.data.Dataset.range(9))

    def update_step(self, gradient, variable, learning_rate):
        factor = tf.cast(next(self.numbers), gradient.dtype)
        super().update_step(gradient * factor, variable, learning_rate)


class OfItsPath(keras.optimizers.SGD):
    """Asks the weight for its path, which a tf.Variable does not have."""

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient, variable, learning_rate * float('w' in variable.path))


class Repeatable(keras.optimizers.SGD):
    """Adds numbers that follow from the number of updates."""

    def update_step(self, gradient, variable, learning_rate):
        seed = tf.stack([tf.cast(self.iterations.value, tf.int64), 7])
        noise = tf.random.stateless_normal(tf.shape(gradient), seed)
        super().update_step(gradient + noise, variable, learning_rate)


class Wrapping(keras.optimizers.SGD):
    """Has an apply of its own."""

    def apply(self, grads, trainable_variables=None):
        super().apply(grads, trainable_variables)


def made_of(keras_class: type) -> Optimizer.Params:
    return type('Mine', (Optimizer,), {'keras_class': keras_class}).Params()


@pytest.mark.parametrize(
    ('keras_class', 'sentence'),
    [(Noisy, 'Noisy makes the op RandomStandardNormal.*stateless'),
     (NoisyInABranch, 'makes the op RandomUniform.*stateless'),
     (Seeded, 'Seeded uses a variable in an update that is not among its variables.*stateless'),
     (OfADataset, 'OfADataset makes the op IteratorGetNext, which gives other numbers'),
     (OfItsPath, "fails in the update of a weight: .*has no attribute 'path'.*a tf.Variable"),
     (Wrapping, '^Wrapping has a method apply of its own.* write its update_step alone')])
def test_updates_that_cannot_be_repeated_are_refused(keras_class, sentence):
    with pytest.raises(ValueError, match=sentence):
        learner(optimizer=made_of(keras_class))


def test_an_optimizer_that_follows_from_its_variables_is_taken():
    learner(optimizer=made_of(Repeatable))


class Misnamed(Optimizer):
    """Has a field that its optimizer has no argument for."""

    keras_class = Repeatable

    class Params(Optimizer.Params):
        speed: float = field(1., 'No argument.')


def test_fields_that_the_optimizer_does_not_take_are_named():
    with pytest.raises(ValueError, match='Repeatable is made with learning_rate, name and the '
                                         'fields speed of Misnamed.Params, and refuses them'):
        learner(optimizer=Misnamed.Params())
