"""Rate check: a learning rate of a user's own that cannot be part of a graph is refused."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.learning import learning_rates
from lingpipe.learning.rate_check import check_rate
from tests.support.learners import learner

TABLE = tf.constant([0.3, 0.2, 0.1])
CODES = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(tf.constant([0, 1], tf.int64), TABLE[:2]), 0.1)
VARIABLE = tf.Variable(0.1)
NUMBERS = iter(tf.data.Dataset.range(9))
GENERATOR = tf.random.Generator.from_seed(0)


@pytest.mark.parametrize(
    ('rate', 'sentence'),
    [(lambda step: 0.1 if step < 3 else 0.01, r'fails when it is given the step: .*tf\.where'),
     (lambda step: 0.1 * 0.5 ** (step // 10), r'Expected int64.* convert it with tf\.cast'),
     (lambda step: 0.1 / (int(step) + 1), r'fails when it is given the step'),
     (lambda step: None, r'fails when it is given the step'),
     (lambda step: tf.fill([1], 0.1), r'has the shape \(1,\), but a rate is one number'),
     (lambda step: tf.random.uniform([]), r'stateful op RandomUniform, but must depend'),
     (lambda step: GENERATOR.uniform([]), r'stateful op RngReadAndSkip, but must depend'),
     (lambda step: next(NUMBERS), r'stateful op IteratorGetNext, but must depend'),
     (lambda step: tf.timestamp(), r'stateful op Timestamp, but must depend'),
     (lambda step: np.exp(-step), r'fails when it is given the step: .*tf\.math in place of NumPy'),
     (lambda step: tf.cond(step < 3, lambda: VARIABLE * 1, lambda: 0.1),
      r'reads the variable Variable:0, which no checkpoint holds')])
def test_what_a_graph_cannot_compute_from_the_step_is_refused(rate, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_rate(rate, 'Mine')


@pytest.mark.parametrize(
    'rate', [lambda step: 0.1, lambda step: np.float64(0.1), lambda step: step,
             lambda step: tf.random.stateless_uniform([], tf.stack([step, 1]))])
def test_what_depends_on_the_step_alone_is_taken(rate):
    check_rate(rate, 'Mine')


def printed(step):
    tf.print('step', step)
    return 0.1


def asserted(step):
    tf.debugging.assert_non_negative(step)
    return 0.1


@pytest.mark.parametrize(
    'rate', [lambda step: TABLE[tf.minimum(step, 2)], CODES.lookup, printed, asserted,
             lambda step: tf.case([(step < 3, lambda: 0.1)], lambda: 0.2, exclusive=True),
             lambda step: tf.numpy_function(lambda s: np.float32(0.1), [step], tf.float32)],
    ids=['table', 'codes', 'print', 'assert', 'case', 'numpy'])
def test_what_a_step_can_compute_is_taken(rate):
    """Once these were refused, since the check built a graph that is not like that of a step."""
    check_rate(rate, 'Mine')


class Halving(learning_rates.Schedule):
    """A rate that is no graph's, as NumPy would compute it."""

    def decay(self):
        return lambda s: 0.1 if s < 3 else 0.05


class Aimless(learning_rates.Schedule):
    """A rate that warms up to nothing."""

    def decay(self):
        return lambda s: 0.1


def test_a_learner_names_the_rate_that_it_refuses():
    with pytest.raises(ValueError, match='the learning rate Halving fails'):
        learner(learning_rate=Halving.Params())


def test_a_warm_up_needs_a_peak():
    learner(learning_rate=Aimless.Params())
    with pytest.raises(NotImplementedError, match='Aimless has no peak.* give it a property peak'):
        learner(learning_rate=Aimless.Params(warmup_steps=3))
