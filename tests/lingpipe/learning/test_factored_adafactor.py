"""Adafactor: the numbers of the paper, with slots for rows and columns alone."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.learning import optimizers
from tests.support.learners import TOLERANCE, learner

SHAPES = {'m/kernel': (3, 5, 4), 'm/bias': (4,)}   # the last two axes are factored


def rms(x):
    return np.sqrt(np.mean(x ** 2))


class Paper:
    """Algorithms 4 and 5 of arXiv:1804.04235 for one weight, in float64."""

    def __init__(self, weight):
        self.weight, self.step = weight.astype(float), 0
        self.rows = self.columns = self.moment = self.average = 0.

    def update(self, gradient, rate, bounds_rate=True, scales_by_weight=True, beta_1=0.):
        self.step += 1
        beta_2 = 1 - self.step ** -0.8
        squares = gradient.astype(float) ** 2 + 1e-30
        if gradient.ndim > 1:
            self.rows = beta_2 * self.rows + (1 - beta_2) * squares.mean(-1)
            self.columns = beta_2 * self.columns + (1 - beta_2) * squares.mean(-2)
            moment = np.einsum('...i,...j,...->...ij', self.rows, self.columns,
                               1 / self.rows.mean(-1))
        else:
            moment = self.moment = beta_2 * self.moment + (1 - beta_2) * squares

        update = gradient / np.sqrt(moment)
        update = update / max(1, rms(update))
        rho = min(rate, self.step ** -0.5) if bounds_rate else rate
        alpha = rho * (max(1e-3, rms(self.weight)) if scales_by_weight else 1)
        self.average = beta_1 * self.average + (1 - beta_1) * alpha * update
        self.weight = self.weight - self.average


@pytest.mark.parametrize('values', [
    {}, {'beta_1': 0.9}, {'bounds_rate': False, 'scales_by_weight': False}], ids=str)
def test_the_numbers_are_those_of_the_paper(values):
    rng = np.random.default_rng(0)
    weights = {path: tf.Variable(rng.normal(size=shape).astype(np.float32))
               for path, shape in SHAPES.items()}
    expected = {path: Paper(weight.numpy()) for path, weight in weights.items()}
    rate = 0.6   # from the third step on, 1 / sqrt(step) is less
    layer = learner(rate, optimizer=optimizers.Adafactor.Params(**values)).for_layer('m', weights)

    for scale in (1., 30., 0.01, 1.):
        gradients = {path: (scale * rng.normal(size=shape)).astype(np.float32)
                     for path, shape in SHAPES.items()}
        layer.apply({path: tf.constant(value) for path, value in gradients.items()})
        for path, value in gradients.items():
            expected[path].update(value, rate, **values)
            np.testing.assert_allclose(weights[path], expected[path].weight, atol=TOLERANCE)


def test_no_slot_has_the_size_of_a_matrix_unless_there_is_momentum():
    def shapes(**values):
        weights = {path: tf.Variable(tf.zeros(shape)) for path, shape in SHAPES.items()}
        layer = learner(optimizer=optimizers.Adafactor.Params(**values)).for_layer('m', weights)
        return {key.removeprefix('optimizer/m/'): tuple(slot.shape)
                for key, slot in layer.variables().items()}

    factored = {'iterations': (), 'kernel/r': (3, 5), 'kernel/c': (3, 4), 'bias/v': (4,)}
    assert shapes() == factored
    assert shapes(beta_1=0.9) == {**factored, 'kernel/momentums': (3, 5, 4),
                                  'bias/momentums': (4,)}
