"""Weight check: a main loss whose weight would need a gradient is refused."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.hyperparams import field
from lingpipe.layers.base import Layer
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from tests.support.learners import learner


class Gated(Layer):
    """Squares of x, weighted by a gate that x opens."""

    class Params(Layer.Params):
        """The gate."""
        gate: str = field('open', 'Its kind.')

    def fprop(self, theta, ctx, x):
        gates = {'open': lambda: tf.sigmoid(x[:, 0]),
                 'held': lambda: tf.stop_gradient(tf.sigmoid(x[:, 0])),
                 'rows': lambda: tf.cast(tf.argmax(x, -1), tf.float32) + 1}
        gate = gates[self.params.gate]()
        ctx.emit_loss(self.path, 'loss', tf.reduce_sum(gate * tf.reduce_sum(x * x, -1)),
                      tf.reduce_sum(gate))


def _step(gate: str, **params: object) -> dict[str, tf.Tensor]:
    network = layers.Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='dense', input_dim=3, units=2),
        Gated.Params(name='loss', gate=gate))).instantiate()
    batch = {'x': np.random.default_rng(0).normal(size=[4, 3]).astype(np.float32)}
    program = Program(network, {'x': tf.TensorSpec([4, 3])},
                      PipelineParams(num_micro_batches=2, **params), learner())
    return program.train_step(batch, 0)


@pytest.mark.parametrize('params', [{}, {'num_cells': 2, 'recompute': 'layer'}])
def test_a_weight_that_training_moves_is_refused(params):
    """Its part of the gradient was left out, without a word."""
    with pytest.raises(ValueError, match="model/loss: the weight of its loss 'loss' has a "
                                         r'gradient.*; give tf\.stop_gradient of it'):
        _step('open', **params)


@pytest.mark.parametrize('gate', ['held', 'rows'])
def test_a_weight_without_a_gradient_may_depend_on_the_network(gate):
    assert _step(gate)['is_finite']
