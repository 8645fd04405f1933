"""Learning rates: every schedule is its formula."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.learning import learning_rates
from tests.support.learners import TOLERANCE, learner


@pytest.mark.parametrize(
    ('params', 'expected'),
    [(learning_rates.Constant.Params(rate=2.), {0: 2., 9: 2.}),
     (learning_rates.Constant.Params(rate=2., warmup_steps=4), {0: 0.5, 1: 1., 3: 2., 9: 2.}),
     (learning_rates.Cosine.Params(rate=2., decay_steps=10, warmup_steps=4),
      {0: 0.5, 3: 2., 4: 2., 9: 1., 14: 0., 99: 0.}),
     (learning_rates.Cosine.Params(rate=2., decay_steps=10, final_fraction=0.1),
      {0: 2., 5: 1.1, 10: 0.2}),
     (learning_rates.Exponential.Params(rate=8., decay_steps=10, decay_factor=0.5, staircase=True,
                                        warmup_steps=2),
      {0: 4., 2: 8., 11: 8., 12: 4., 31: 2., 32: 1.}),
     (learning_rates.Exponential.Params(rate=8., decay_steps=10, decay_factor=0.25),
      {0: 8., 5: 4., 10: 2.}),
     (learning_rates.Linear.Params(rate=2., decay_steps=4, final_rate=1.),
      {0: 2., 1: 1.75, 4: 1., 9: 1.}),
     (learning_rates.Polynomial.Params(rate=4., decay_steps=4, power=2.), {0: 4., 2: 1., 4: 0.}),
     (learning_rates.InverseSquareRoot.Params(rate=2., warmup_steps=4),
      {0: 0.5, 3: 2., 15: 1., 63: 0.5}),
     (learning_rates.Piecewise.Params(boundaries=(10, 20), rates=(3., 2., 1.), warmup_steps=3),
      {0: 1., 2: 3., 9: 3., 10: 2., 19: 2., 20: 1.}),
     # float32 has no odd numbers there, so that the rate changed a step early or late.
     (learning_rates.Piecewise.Params(boundaries=(2 ** 24 + 1, 2 ** 24 + 4), rates=(3., 2., 1.)),
      {2 ** 24: 3., 2 ** 24 + 1: 2., 2 ** 24 + 3: 2., 2 ** 24 + 4: 1.})],
    ids=str)
def test_a_schedule_is_these_rates(params, expected):
    the_learner = learner(learning_rate=params)
    in_graph = tf.function(the_learner.learning_rate, autograph=False)
    for step, rate in expected.items():
        np.testing.assert_allclose(the_learner.learning_rate(step), rate, atol=TOLERANCE)
        np.testing.assert_allclose(in_graph(tf.constant(step, tf.int64)), rate, atol=TOLERANCE)
