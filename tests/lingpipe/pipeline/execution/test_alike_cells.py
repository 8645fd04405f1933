"""Alike cells: traced once, each with its own weights, random numbers and moments."""
from __future__ import annotations

import collections
import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.nested import NestedMap
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams

K, M, BATCH, T, D = 4, 4, 8, 4, 8


class NamesItself(layers.Dense):
    """Does what no other layer does, and inherits from a layer that is traced once."""

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        return super().fprop(theta, ctx, x) * (1. + float(self.path[-1]))



class Checks(layers.Dense):
    """Fails where its result is not finite."""
    is_traced_once = True

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        y = super().fprop(theta, ctx, x)
        is_bad = tf.reduce_any(tf.math.is_inf(y))
        return y * tf.gather(tf.ones([1]), tf.cast(is_bad, tf.int32))


def program_of(block, num_cells: int = K, frozen: str = '', **params: Any) -> Program:
    blocks = [one.set(name=f'{one.name}_{i}') for i in range(K) for one in block()]
    network = Sequential.Params(
        name='model', layers=(*blocks, layers.MeanSquaredErrorLoss.Params(name='loss')))
    learner = Learner.Params(optimizer=optimizers.SGD.Params(momentum=0.9), frozen=frozen,
                             learning_rate=learning_rates.Constant.Params(rate=0.01))
    spec = {name: tf.TensorSpec([BATCH, T, D]) for name in ('x', 'target')}
    span = len(blocks) // num_cells
    return Program(network.instantiate('model'), spec, PipelineParams(
        num_cells=num_cells, num_micro_batches=M, layers_per_cell=(*[span] * (num_cells - 1),
                                                                   span + 1), **params),
        learner.instantiate(), seed=5)


def trained(program: Program) -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    for step in range(2):
        program.train_step({name: tf.constant(rng.standard_normal([BATCH, T, D]), tf.float32)
                            for name in ('x', 'target')}, step)
    return {key: variable.numpy().tobytes() for key, variable in program.variables().items()}


@functools.cache
def trained_in_one_cell(block, frozen: str = '') -> dict[str, bytes]:
    return trained(program_of(block, num_cells=1, frozen=frozen))


def functions_of(program: Program) -> list[set[str]]:
    """[R K] the names of the functions that the slots of each cell call."""
    calls = collections.Counter(
        (op.device, op.get_attr('f').name) for op in program.step_graph().get_operations()
        if op.type == 'StatefulPartitionedCall')
    called: dict[str, set[str]] = {}
    for (device, name), num_calls in calls.items():
        if num_calls == M:
            called.setdefault(device, set()).add(name)
    return [names for _, names in sorted(called.items())]


def transformer() -> list[Layer.Params]:
    return [layers.TransformerEncoderLayer.Params(
        name='layer', model_dim=D, num_heads=2, hidden_dim=16, dropout_rate=0.3,
        attention_dropout_rate=0.2, hidden_dropout_rate=0.1)]


def normalised() -> list[Layer.Params]:
    return [layers.Dense.Params(name='dense', input_dim=D, units=D),
            layers.BatchNorm.Params(name='norm', dim=D), layers.Dropout.Params(name='drop')]


@pytest.mark.parametrize(('block', 'recompute'), [
    (transformer, 'cell'), (normalised, 'none'), (normalised, 'cell'), (normalised, 'layer')])
def test_cells_that_are_alike_share_tasks_and_train_as_one_cell(block, recompute):
    program = program_of(block, recompute=recompute)
    first, *middle, last = functions_of(program)
    assert len(middle) == 2
    assert middle[0] == middle[1]
    assert not middle[0] & (first | last)
    assert trained(program) == trained_in_one_cell(block)


def test_replicas_share_tasks():
    program = program_of(normalised, num_cells=2, num_replicas=2)
    first, last, first_of_other, last_of_other = functions_of(program)
    assert (first, last) == (first_of_other, last_of_other)
    trained(program)
    program.check_replicas()


def test_cells_with_other_frozen_weights_are_not_alike():
    program = program_of(normalised, frozen='dense_1/w')
    _, second, third, _ = functions_of(program)
    assert not second & third
    assert trained(program) == trained_in_one_cell(normalised, 'dense_1/w')


def test_a_subclass_is_traced_for_itself_unless_it_says_otherwise():
    def block() -> list[Layer.Params]:
        return [NamesItself.Params(name='dense', input_dim=D, units=D)]

    program = program_of(block)
    _, second, third, _ = functions_of(program)
    assert not second & third
    assert trained(program) == trained(program_of(block, 1))


@pytest.mark.parametrize('number', [1, 2])
def test_an_error_of_a_shared_task_names_the_layer_that_fails(number):
    """Cells 1 and 2 share their tasks, whose ops are named after the layers of one of them."""
    program = program_of(lambda: [Checks.Params(name='dense', input_dim=D, units=D)])
    _, *middle, _ = functions_of(program)
    assert middle[0] == middle[1]
    path = f'model/dense_{number}'
    bias = program.weights[f'{path}/b']
    bias.assign(tf.fill(bias.shape, np.inf))
    batch = {name: tf.ones([BATCH, T, D]) for name in ('x', 'target')}
    for run in (lambda: program.train_step(batch, 0),
                lambda: program.evaluator({n: tf.TensorSpec(b.shape) for n, b in batch.items()}
                                          ).step(batch)):
        with pytest.raises(tf.errors.InvalidArgumentError, match='indices = 1 is not in') as error:
            run()
        assert path in error.value.message
        assert f'model/dense_{3 - number}' not in error.value.message
