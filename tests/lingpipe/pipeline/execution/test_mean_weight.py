"""Mean weight: what the main loss is divided by, known before any task runs."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.pipeline.execution.mean_weight import MeanWeight, asked_for
from lingpipe.pipeline.planning.dataflow import Element, wire

B, M, CLASSES = 8, 4, 3
LABELS = np.array([0, 1, 2, 0, 0, 1, 2, 2], np.int32)
WEIGHT = np.arange(B, dtype=np.float32)


class WeighLabels(Layer):
    """The weight of an example is its label."""

    def fprop(self, theta, ctx, labels):
        return tf.cast(labels, tf.float32)

    def cost(self, labels):
        return Cost(0, 0, tf.TensorSpec(labels.shape))


class LearnedWeight(Layer):
    """The weight of every example is w."""

    def __init__(self, params, path=''):
        super().__init__(params, path)
        self.add_weight('w', [])

    def fprop(self, theta, ctx, labels):
        return tf.fill(labels.shape, theta.w)

    def cost(self, labels):
        return Cost(0, 1, tf.TensorSpec(labels.shape))


def elements(*network: Layer.Params) -> tuple[Element, ...]:
    """Layers and a loss, for one micro-batch."""
    b = B // M
    made = Sequential.Params(name='model', layers=(
        *network, layers.CrossEntropyLoss.Params(name='loss'))).instantiate('model')
    return wire(made, {'x': tf.TensorSpec([b, CLASSES]), 'labels': tf.TensorSpec([b], tf.int32),
                       'weight': tf.TensorSpec([b])})


def mean_weight(network: tuple[Element, ...]) -> float:
    batch = {'x': np.zeros([B, CLASSES], np.float32), 'labels': LABELS, 'weight': WEIGHT}
    return float(MeanWeight(network, training=True).of(batch, M))


def test_it_is_the_sum_of_weights_divided_by_the_number_of_micro_batches():
    assert mean_weight(elements()) == WEIGHT.sum() / M


def test_a_layer_may_make_the_weight_of_the_mini_batch():
    weigh = WeighLabels.Params(name='weigh', reads={'labels': 'labels'}, writes='weight')
    assert mean_weight(elements(weigh)) == LABELS.sum() / M


def test_a_weight_that_is_learned_is_refused():
    learned = LearnedWeight.Params(name='learned', reads={'labels': 'labels'}, writes='weight')
    with pytest.raises(ValueError, match='model/learned makes what the main loss is weighted '
                                         'with, out of its weights or random numbers, .*; weight '
                                         'the loss with a value of the mini-batch, or leave the '
                                         'penalties out.'):
        mean_weight(elements(learned))


def test_a_network_without_a_loss_is_refused():
    weigh = WeighLabels.Params(name='weigh', reads={'labels': 'labels'}, writes='weight')
    with pytest.raises(ValueError, match='no layer gives a loss with a weight; end the network '
                                         'with a loss.'):
        mean_weight(elements(weigh)[:-1])


def test_tasks_without_a_penalty_do_not_ask_for_it(pipeline):
    assert not asked_for(pipeline.tasks.values())
