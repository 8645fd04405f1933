"""pool_gradients: one kernel for the gradient of a maximum pooling, wherever cells end."""
from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.layers.base import Layer
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.learning.pool_gradients import pair_with_pools
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams

POOL = layers.MaxPool2D.Params(name='pool', pool_size=(3, 3), strides=1)
SHAPE = (8, 8, 8, 16)


def keras_pool() -> Layer.Params:
    return layers.KerasLayer.Params(
        name='pool', layer=keras.layers.MaxPooling2D(3, 1, 'same'), input_shape=SHAPE[1:])


def trained(pool: Layer.Params, num_cells: int, recompute: str) -> dict[str, np.ndarray]:
    """The weights after a step of a network with overlapping windows."""
    network = Sequential.Params(layers=(
        layers.Conv2D.Params(name='conv', filters=16, input_dim=16), pool,
        layers.Conv2D.Params(name='conv2', filters=8, input_dim=16),
        layers.GlobalAvgPool2D.Params(name='mean'),
        layers.Dense.Params(name='dense', input_dim=8, units=4),
        layers.CrossEntropyLoss.Params(name='loss'),
    )).instantiate('model')
    rng = np.random.default_rng(0)
    batch = {'x': rng.standard_normal(SHAPE).astype(np.float32),
             'labels': rng.integers(0, 4, SHAPE[0]).astype(np.int32),
             'weight': np.ones(SHAPE[0], np.float32)}
    spec = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in batch.items()}
    learner = Learner.Params(optimizer=optimizers.SGD.Params(),
                             learning_rate=learning_rates.Constant.Params(rate=1.))
    program = Program(network, spec, PipelineParams(
        num_cells=num_cells, num_micro_batches=2, recompute=recompute), learner.instantiate())
    program.train_step(batch, 0)
    return {path: value.numpy() for path, value in program.weights.items()}


@pytest.mark.parametrize('pool', [lambda: POOL, keras_pool], ids=['lingpipe', 'keras'])
def test_weights_do_not_depend_on_cells_or_recomputation(pool):
    expected = trained(pool(), 1, 'none')
    for num_cells, recompute in [(1, 'layer'), (2, 'none'), (4, 'cell')]:
        found = trained(pool(), num_cells, recompute)
        for path, value in expected.items():
            np.testing.assert_array_equal(found[path], value, f'{path} {num_cells} {recompute}')


@pytest.mark.parametrize(('pool', 'shape'), [
    (lambda x: tf.nn.max_pool2d(x, 3, 2, 'VALID'), [2, 9, 9, 4]),
    (lambda x: tf.nn.max_pool2d(x, 3, 1, [[0, 0], [1, 1], [1, 0], [0, 0]]), [2, 9, 9, 4]),
    (lambda x: tf.nn.max_pool3d(x, 3, 1, 'SAME'), [2, 5, 5, 5, 4]),
])
def test_a_pooling_is_repeated_with_all_its_attributes(pool, shape):
    x = tf.constant(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = pool(x)
    expected = tape.gradient(y, x)

    @tf.function
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = pool(x)
        graph = tf.compat.v1.get_default_graph()
        num_before = len(graph.get_operations())
        result = tape.gradient(y, x)
        pair_with_pools(graph.get_operations()[num_before:])
        return result

    pools = [op for op in gradient.get_concrete_function(x).graph.get_operations()
             if op.type in ('MaxPool', 'MaxPool3D')]
    assert len(pools) == 2
    np.testing.assert_allclose(gradient(x), expected, rtol=1e-6)
