"""Cast weights: a weight is cast once a step on each device, and no result changes."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.learning import learning_rates
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.cast_weights import NarrowWeight, cast_weights
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pricing.ops import bodies

BATCH, M, D = 8, 4, 4
SPEC = {name: tf.TensorSpec([BATCH, D]) for name in ('x', 'target')}
PATHS = ('model/a/w', 'model/b/w')
RATE = 0.5


def program_of(**pipeline) -> Program:
    network = Sequential.Params(name='model', layers=(
        layers.Cast.Params(name='cast', dtype='bfloat16'),
        *(layers.Dense.Params(name=name, input_dim=D, units=D, use_bias=False) for name in 'ab'),
        layers.MeanSquaredErrorLoss.Params(name='loss')))
    learner = Learner.Params(learning_rate=learning_rates.Constant.Params(rate=RATE))
    params = PipelineParams(num_micro_batches=M, **pipeline)
    return Program(network.instantiate('model'), SPEC, params, learner.instantiate())


def batch_of() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal([BATCH, D], np.float32) for name in SPEC}


def test_only_casts_of_weights_to_a_narrower_float_are_found():
    graph = tf.Graph()
    with graph.as_default():
        weight, other = tf.zeros([2]), tf.zeros([2])
        narrow = tf.cast(weight, tf.bfloat16)
        for value, dtype in ((weight, tf.float64), (weight, tf.int32), (other, tf.bfloat16),
                             (narrow, tf.float32)):
            tf.cast(value, dtype)

    found, = cast_weights(graph, {'path': [weight]})
    assert found.weight == NarrowWeight('path', tf.bfloat16) and found.tensor is narrow


@pytest.mark.parametrize('pipeline', [
    {'recompute': 'cell'}, {'num_cells': 2, 'recompute': 'none'},
    {'num_cells': 2, 'recompute': 'layer', 'layers_per_cell': (2, 2)},
    {'num_cells': 2, 'schedule': 'zb_h1', 'recompute': 'none'}])
def test_a_weight_is_cast_once_a_step_and_results_are_those_of_a_plain_tape(pipeline):
    program = program_of(**pipeline)
    weights = [program.weights[path].numpy() for path in PATHS]
    graph = program.step_graph()
    assert len(casts_of(graph)) == 2
    assert not [cast for op in graph.get_operations() for body in bodies(op)
                for cast in casts_of(body)]

    program.train_step(batch_of(), 0)
    updated = [program.weights[path].numpy() for path in PATHS]
    for one, expected in zip(updated, plainly_updated(weights), strict=True):
        np.testing.assert_array_equal(one, expected)


def test_the_copies_count_as_memory():
    plan = program_of().plan
    assert plan.forecast.footprints[0].fixed == 2 * D * D * (4 + 4 + 2)


def casts_of(graph: tf.Graph) -> list[tf.Operation]:
    """The casts of matrices [D, D] to bfloat16."""
    return [op for op in graph.get_operations() if op.type == 'Cast'
            and op.outputs[0].dtype == tf.bfloat16 and op.outputs[0].shape == [D, D]]


def plainly_updated(weights: list[np.ndarray]) -> list[np.ndarray]:
    """The weights after a step of SGD, from one tape for each micro-batch."""
    sums = [np.zeros([D, D], np.float32) for _ in weights]
    variables = [tf.constant(weight) for weight in weights]
    batch = {name: np.split(value, M) for name, value in batch_of().items()}
    for x, target in zip(batch['x'], batch['target'], strict=True):
        with tf.GradientTape() as tape:
            tape.watch(variables)
            y = tf.cast(x, tf.bfloat16)
            for variable in variables:
                y = tf.matmul(y, tf.cast(variable, tf.bfloat16))
            loss = tf.reduce_sum(tf.square(tf.cast(y, tf.float32) - target))
        sums = [total + gradient.numpy() for total, gradient in zip(
            sums, tape.gradient(loss, variables), strict=True)]
    return [weight - RATE * (total / (BATCH * D))
            for weight, total in zip(weights, sums, strict=True)]
