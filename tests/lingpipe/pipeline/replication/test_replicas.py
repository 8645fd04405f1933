"""Replicas: sums by collectives, and BatchNorm over the micro-batches of all of them.

BatchNorm gives what one pipeline gives whose micro-batches are those of all replicas joined.
"""
from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.layers.base import Layer
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution import graph_cutting
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from tests.support.toy_layers import FailAbove

BATCH, M = 16, 2
CPUS = [f'/device:CPU:{i}' for i in range(4)]


class Join(Layer):
    """Maps two images [b, h, w, C] to [b, 2 C], their means over all places."""

    def fprop(self, theta, ctx, a, b):
        return tf.reduce_mean(tf.concat([a, tf.square(b)], -1), [1, 2])


def network(*first: Layer.Params) -> Sequential:
    """A network with a convolution and three BatchNorms.

    Two normalise images and do not depend on each other; the third normalises rows in the last
    cell.
    """
    return Sequential.Params(name='model', layers=(
        *first,
        layers.Conv2D.Params(name='conv', input_dim=1, filters=3, kernel_size=(3, 3),
                             reads={'x': 'image'}, writes='y'),
        layers.BatchNorm.Params(name='bn1', dim=3, decay=0.9, reads={'x': 'y'}, writes='a'),
        layers.BatchNorm.Params(name='bn2', dim=3, decay=0.5, reads={'x': 'y'}, writes='b'),
        Join.Params(name='join'),
        layers.BatchNorm.Params(name='bn3', dim=6),
        layers.CrossEntropyLoss.Params(name='loss'),
    )).instantiate('model')


def batches(num: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{'image': (3 + 2 * rng.standard_normal((BATCH, 4, 4, 1))).astype(np.float32),
             'labels': rng.integers(0, 6, BATCH).astype(np.int32),
             'weight': np.ones(BATCH, np.float32)}
            for _ in range(num)]


def joined(batch: dict[str, np.ndarray], num_replicas: int) -> dict[str, np.ndarray]:
    """Returns the mini-batch whose micro-batches are those of all replicas, joined."""
    def moved(value: np.ndarray) -> np.ndarray:
        parts = value.reshape(num_replicas, M, -1, *value.shape[1:])
        return np.swapaxes(parts, 0, 1).reshape(value.shape)

    return {name: moved(value) for name, value in batch.items()}


def program_of(net: Sequential | None = None, **params) -> Program:
    learn = Learner.Params(optimizer=optimizers.SGD.Params(momentum=0.9),
                           learning_rate=learning_rates.Constant.Params(rate=0.05)).instantiate()
    spec = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in batches(1)[0].items()}
    pipeline = PipelineParams(num_micro_batches=M, shares_threads=False, **params)
    return Program(net or network(), spec, pipeline, learn, seed=7)


def trained(program: Program, num_joined: int = 1) -> dict[str, np.ndarray]:
    """Returns all variables after four steps, and the results of the last step."""
    for step, batch in enumerate(batches(4)):
        results = program.train_step(joined(batch, num_joined), step)
    program.check_replicas()
    return {**{key: variable.numpy() for key, variable in program.variables().items()},
            **{name: results[name].numpy() for name in ('loss', 'gradient_norm')}}


@functools.cache
def one_pipeline(num_joined: int) -> dict[str, np.ndarray]:
    return trained(program_of(), num_joined)


@functools.cache
def two_replicas() -> dict[str, np.ndarray]:
    return trained(program_of(num_replicas=2, cross_replica_batch_norm=True))


def assert_close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-5, err_msg=key)


def assert_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)


def test_batch_norm_over_replicas_is_that_of_one_pipeline_with_their_micro_batches_joined():
    assert_close(two_replicas(), one_pipeline(2))


def test_four_replicas_and_a_ring_are_one_pipeline_with_their_micro_batches_joined():
    assert_close(trained(program_of(num_replicas=4, cross_replica_batch_norm=True,
                                    replica_reduction='ring')),
                 one_pipeline(4))


@pytest.mark.parametrize(('schedule', 'recompute'), [
    ('gpipe', 'none'), ('1f1b', 'layer'), ('zb_h1', 'none'), ('zb_h1', 'cell')])
def test_the_partition_is_invisible_with_batch_norm_over_replicas(schedule, recompute):
    assert_equal(
        trained(program_of(num_cells=2, layers_per_cell=(3, 3), num_replicas=2, schedule=schedule,
                           recompute=recompute, cross_replica_batch_norm=True)),
        two_replicas())


@pytest.mark.parametrize('reduction', ['add', 'ring'])
def test_a_cell_is_reduced_while_earlier_cells_still_run_backward(reduction):
    program = program_of(num_cells=2, num_replicas=2, replica_reduction=reduction,
                         devices=tuple(CPUS), layers_per_cell=(3, 3))
    ops = program.step_graph().get_operations()
    for cells in program.plan.replicas:
        # Outside of tasks and updates, nothing is assigned but the sums over replicas.
        summed = [op
                  for op in ops
                  if op.type == 'AssignVariableOp' and op.device.endswith(cells[1].device)]
        assert len(summed) > sum(len(element.trained) for element in cells[1].elements)
        for op in summed:
            before = graph_cutting.ancestors([op.inputs[1]], set()).values()
            on_first = [
                one
                for one in before
                if one.type == 'StatefulPartitionedCall' and one.device.endswith(cells[0].device)]
            # They are the forwards that the last cell needed, and none of the M backwards.
            assert len(on_first) == M


def test_a_replica_that_fails_cuts_off_those_that_wait_for_it_and_the_next_step_is_well():
    net = network(FailAbove.Params(name='fail', reads={'x': 'image'}, writes='image'))
    program = program_of(net, num_replicas=2, cross_replica_batch_norm=True)
    good, bad = batches(1)[0], batches(1)[0]
    bad['image'][BATCH - 1] = 1e4
    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.CancelledError)):
        program.train_step(bad, 0)
    assert program.train_step(good, 0)['is_finite']
    program.check_replicas()


def test_a_ring_of_two_replicas_sums_to_the_bits_of_an_addition():
    """a + b is b + a; with more than two replicas, a ring adds in another order."""
    program = program_of(num_replicas=2, num_cells=2, cross_replica_batch_norm=True,
                         replica_reduction='ring')
    assert_equal(trained(program), two_replicas())
    ops = program.step_graph().get_operations()
    assert (sum(op.type == 'CollectiveReduceV2' for op in ops)
            == 2 * sum(w.is_trainable for w in program.network.weights()))


@pytest.mark.parametrize(('change', 'sentence'), [
    ({'replica_reduction': 'nccl'},
     "replica_reduction='nccl', but cell 0 of replica 0 is on /device:CPU:0, and NCCL adds up on "
     "GPUs only; use 'ring' or 'add', or name GPUs in --devices."),
    ({'replica_reduction': 'ring', 'devices': ('CPU:0', 'CPU:1', 'CPU:2', '/device:CPU:1')},
     "replica_reduction='ring', but cell 1 of replicas 0 and 1 is on one device, /device:CPU:1, "
     "and a device can be in a sum once; name "
     'another for each replica, or leave it out.'),
    ({'cross_replica_batch_norm': True, 'jit_compile': True},
     'cross_replica_batch_norm sums over replicas within the tasks, and XLA cannot compile that; '
     'set jit_compile=False or cross_replica_batch_norm=False.'),
    ({'cross_replica_batch_norm': True, 'devices': ('CPU:0', 'CPU:1', 'CPU:0', 'CPU:1')},
     'cross_replica_batch_norm, but cell 0 of replicas 0 and 1 is on one device, CPU:0, and a '
     'device can be in a sum once; name another for each replica, or leave it out.'),
])
def test_devices_that_no_collective_can_join_are_refused_in_one_sentence(change, sentence):
    with pytest.raises(ValueError) as error:
        program_of(**{'num_replicas': 2, 'num_cells': 2, 'devices': tuple(CPUS), **change})
    assert str(error.value) == sentence


def test_one_pipeline_asks_for_no_collective():
    assert_equal(trained(program_of(cross_replica_batch_norm=True, replica_reduction='nccl'), 2),
                 one_pipeline(2))
