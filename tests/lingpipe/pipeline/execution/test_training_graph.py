"""Training graph: mini-batches of all shapes share accumulators, whichever shape comes first."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.learning import learning_rates
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams


class EmitsByShape(Layer):
    """Emits a mean for every example of a micro-batch; its accumulator fits only that size."""

    def fprop(self, theta, ctx, x):
        ctx.emit_mean(self.path, 'mean', tf.reduce_mean(x, 1))
        return tf.identity(x)

    def updated_state(self, name, state, value):
        return {}

    def cost(self, x):
        return Cost(0, 0, x)


def batch(size: int) -> dict[str, np.ndarray]:
    return {name: np.ones([size, 3], np.float32) for name in ('x', 'target')}


def program(*extra: Layer.Params) -> Program:
    network = Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='dense', input_dim=3, units=3), *extra,
        layers.MeanSquaredErrorLoss.Params(name='loss')))
    specs = [{name: tf.TensorSpec(value.shape) for name, value in batch(size).items()}
             for size in (8, 4)]
    learner = Learner.Params(
        learning_rate=learning_rates.Constant.Params(rate=0.01)).instantiate()
    return Program(network.instantiate('model'), specs, PipelineParams(num_micro_batches=2),
                   learner)


def test_layers_must_emit_the_same_for_all_shapes():
    refused = program(EmitsByShape.Params(name='emits'))
    refused.train_step(batch(8), 0)
    with pytest.raises(ValueError, match=r'cell 0 \(model/dense .. model/loss\) emits .* for '
                                         r'mini-batches of one shape and .* for those of another'):
        refused.train_step(batch(4), 1)


def test_it_does_not_matter_which_shape_is_traced_first():
    plain, other_first = program(), program()
    other_first.accumulate(batch(4), 0, 0)
    assert plain.sent_bytes() == other_first.sent_bytes()
    ops = [sorted(op.type for op in one.step_graph().get_operations())
           for one in (plain, other_first)]
    assert ops[0] == ops[1]


def test_a_program_is_traced_shape_by_shape():
    one = program()
    assert not one.has_traced(batch(8)) and not one.has_traced(batch(4))
    one.train_step(batch(4), 0)
    assert not one.has_traced(batch(8)) and one.has_traced(batch(4))
