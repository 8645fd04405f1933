"""Learners for tests, a layer with a kernel and a bias, and the same gradients every time."""
from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.learning import learning_rates
from lingpipe.learning.layer_learner import LayerLearner
from lingpipe.learning.learner import Learner

TOLERANCE = 1e-6   # For float32, values of about 1, and five updates.


def learner(rate: float = 0.1, **values: Any) -> Learner:
    values.setdefault('learning_rate', learning_rates.Constant.Params(rate=rate))
    return Learner.Params(**values).instantiate()


def make_weights(device: str = 'CPU:0') -> dict[str, tf.Variable]:
    rng = np.random.default_rng(0)
    with tf.device(device):
        return {'model/dense/kernel': tf.Variable(rng.normal(size=[4, 3]).astype(np.float32),
                                                  name='model/dense/kernel'),
                'model/dense/bias': tf.Variable(rng.normal(size=[3]).astype(np.float32),
                                                name='model/dense/bias')}


def gradient_of(path: str, step: int) -> np.ndarray:
    shape = [4, 3] if path.endswith('kernel') else [3]
    return np.random.default_rng(step + 100 * len(path)).normal(size=shape).astype(np.float32)


def train(the_learner: Learner, num_steps: int = 5,
          weights: dict[str, tf.Variable] | None = None,
          ) -> tuple[LayerLearner, dict[str, tf.Variable]]:
    """The learner of the layer, and its weights, after some updates."""
    weights = weights or make_weights()
    layer = the_learner.for_layer('model/dense', weights)
    apply = tf.function(lambda gradients: layer.apply(gradients), autograph=False)
    for step in range(num_steps):
        apply({path: the_learner.regularized(path, tf.constant(gradient_of(path, step)),
                                             weights[path])
               for path in weights})
    return layer, weights

