"""Compiled shape: all shapes of mini-batches share the accumulators."""
from __future__ import annotations

import pytest
import tensorflow as tf

from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from tests.lingpipe.pipeline.execution import test_training_graph


class EmitsByShape(Layer):
    """Emits a mean for every example of a micro-batch; its accumulator fits only that size."""

    def fprop(self, theta, ctx, x):
        ctx.emit_mean(self.path, 'mean', tf.reduce_mean(x, 1))
        return tf.identity(x)

    def updated_state(self, name, state, value):
        return {}

    def cost(self, x):
        return Cost(0, 0, x)


def test_layers_must_emit_the_same_for_all_shapes():
    refused = test_training_graph.program(EmitsByShape.Params(name='emits'))
    refused.train_step(test_training_graph.batch(8), 0)
    with pytest.raises(ValueError, match=r'cell 0 \(model/dense .. model/loss\) emits .* for '
                                         r'mini-batches of one shape and .* for those of another'):
        refused.train_step(test_training_graph.batch(4), 1)
