"""Ordered sums: three or more tensors are added in one order, whoever else holds them."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.hyperparams import field
from lingpipe.layers.base import Layer
from lingpipe.pipeline.execution.ordered_sums import ordered_sum
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from tests.support.learners import learner

BATCH, DIM = 8, 6


class Thrice(Layer):
    """Writes x under three names, so that its backward adds up three gradients."""

    class Params(Layer.Params):
        """The names."""
        writes: str | dict[str, str] = field({'x': 'x', 'a': 'a', 'b': 'b'}, 'The names.')

    def fprop(self, theta, ctx, x):
        return {'x': x, 'a': x, 'b': x}


class Joined(Layer):
    """One sum of three tensors."""

    def fprop(self, theta, ctx, x, a, b):
        return tf.add_n([x * a, b, x * 0.3])


def _graph_of_sum(num_operands: int) -> tf.Graph:
    with tf.Graph().as_default() as graph:
        operands = [tf.compat.v1.placeholder(tf.float32, [1000], name=f'operand_{i}')
                    for i in range(num_operands)]
        with tf.control_dependencies([tf.no_op('before')]):
            tf.raw_ops.AddN(inputs=operands, name='total')
    return graph


@pytest.mark.parametrize('num_operands', [3, 4, 9, 10, 11, 17, 18, 26])
def test_order_is_that_of_a_sum_that_finds_its_first_input_free(num_operands):
    rng = np.random.default_rng(0)
    operands = [tf.constant(rng.normal(size=1000), tf.float32) for _ in range(num_operands)]
    graph_def = tf.compat.v1.GraphDef()
    for node in _graph_of_sum(num_operands).as_graph_def().node:
        graph_def.node.extend(ordered_sum(node))
    assert not any(node.op == 'AddN' for node in graph_def.node)

    @tf.function(autograph=False)
    def total(*tensors):
        known = {f'operand_{i}:0': tensor for i, tensor in enumerate(tensors)}
        return tf.import_graph_def(graph_def, known, ['total:0'])[0]

    assert np.array_equal(total(*operands), tf.raw_ops.AddN(inputs=operands))


def test_each_addition_waits_for_what_the_sum_waited_for():
    node = next(node for node in _graph_of_sum(4).as_graph_def().node if node.name == 'total')
    assert [list(addition.input) for addition in ordered_sum(node)] == [
        ['operand_0', 'operand_1', '^before'], ['total/ordered_0', 'operand_2', '^before'],
        ['total/ordered_1', 'operand_3', '^before']]


def _trained(recompute: str, **params: object) -> dict[str, bytes]:
    """The weights after three steps."""
    def dense(name: str, **others: object) -> layers.Dense.Params:
        return layers.Dense.Params(name=name, input_dim=DIM, units=DIM, **others)

    network = layers.Sequential.Params(name='model', layers=(
        dense('first', activation='tanh'), Thrice.Params(name='thrice'),
        dense('second'), Joined.Params(name='joined'), dense('last'),
        layers.MeanSquaredErrorLoss.Params(name='loss'))).instantiate()
    spec = {name: tf.TensorSpec([BATCH, DIM]) for name in ('x', 'target')}
    program = Program(network, spec, PipelineParams(
        num_micro_batches=2, recompute=recompute, shares_threads=False, **params),
        learner())
    rng = np.random.default_rng(0)
    for step in range(3):
        batch = {name: rng.normal(size=[BATCH, DIM]).astype(np.float32) for name in spec}
        program.train_step(batch, step)
    return {path: weight.numpy().tobytes() for path, weight in program.weights.items()}


def test_cells_and_recomputation_change_no_bit_of_a_layer_with_sums_of_three():
    """AddN began with the tensor whose memory was free, which differed from cell to cell."""
    whole = _trained('none', num_cells=1)
    assert _trained('none', num_cells=2, schedule='zb_h1') == whole
    assert _trained('cell', num_cells=4) == whole
