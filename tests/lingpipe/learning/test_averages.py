"""Averages: they begin with the first update, warm up, and follow weights that are assigned."""
from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.support.learners import TOLERANCE, learner, train


def test_the_average_begins_with_the_first_update_and_warms_up():
    layer, weights = train(learner(1., ema_decay=0.99), 0)
    path, values = 'model/dense/bias', []
    for _ in range(3):
        layer.apply({path: tf.ones([3])})
        values.append(weights[path].numpy())
    average = values[0]
    for n, value in ((1, values[1]), (2, values[2])):
        average = value + (1 + n) / (10 + n) * (average - value)
    np.testing.assert_allclose(layer.ema()[path], average, atol=TOLERANCE)


def test_without_warm_up_the_decay_is_constant():
    layer, weights = train(learner(1., ema_decay=0.75, ema_warmup=False), 0)
    before = weights['model/dense/bias'].numpy()
    for _ in range(2):
        layer.apply({'model/dense/bias': tf.ones([3])})
    np.testing.assert_allclose(layer.ema()['model/dense/bias'], before - 1.25, atol=TOLERANCE)


def test_averages_follow_weights_that_were_assigned():
    layer, weights = train(learner(ema_decay=0.9), 0)
    weights['model/dense/bias'].assign([7., 8., 9.])
    layer.follow_weights()
    np.testing.assert_array_equal(layer.ema()['model/dense/bias'], [7., 8., 9.])
