"""Stateful ops: a layer that has one is refused by name."""
from __future__ import annotations

import pytest
import tensorflow as tf

from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from tests.lingpipe.pipeline.execution import test_program


class StatefulRandom(Layer):
    """Makes a stateful random op, which no layer may do."""

    def fprop(self, theta, ctx, x):
        return x * tf.random.uniform([])

    def cost(self, x):
        return Cost(0, 0, x)


def test_a_stateful_op_is_refused_with_the_layer_named():
    with pytest.raises(
            ValueError,
            match=r'model/rand makes the stateful op RandomUniform .*use tf.random.stateless_\*'):
        network = test_program.network_with(StatefulRandom.Params(name='rand'))
        test_program.program_of(network).train_step(test_program.batches(1)[0], 0)
