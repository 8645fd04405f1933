"""Backward share: what frozen weights leave of a backward, for plans and in the tasks of a step."""
from __future__ import annotations

import collections
import functools

import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers.base import Layer
from lingpipe.layers.low_rank import Adapters
from lingpipe.layers.sequential import Sequential
from lingpipe.pipeline.execution.cell_trace import trace_cell
from lingpipe.pipeline.execution.forward_trace import TracingOptions, trace_forward
from lingpipe.pipeline.planning.backward_share import backward_share, weight_share
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.pipeline.planning.dataflow import wire
from lingpipe.pipeline.planning.fitting_modes import Recomputation
from tests.support.planned_chains import MICRO_BATCH_SPEC, dense, made, plan_of
from tests.support.traced import NoAccumulators

FIRST = dense('first', 8, 16, reads={'x': 'image'})


def shares(*network: Layer.Params, frozen: tuple[str, ...] = ()) -> list[tuple[float, float]]:
    """Returns the share of the backward, and of W in it, of all layers but the loss."""
    elements = wire(made(FIRST, *network), MICRO_BATCH_SPEC, lambda path: path in frozen)
    return [(backward_share(element), weight_share(element)) for element in elements[:-1]]


def test_half_of_a_backward_is_left_of_a_frozen_projection_and_none_of_it_is_that_of_weights():
    network = dense('frozen', 16, 8), dense('last', 8, 8)
    assert shares(*network, frozen=('model/frozen/w',)) == [(1, 1), (0.5, 0), (1, 0.5)]


def test_the_backward_of_a_layer_without_a_frozen_matrix_is_whole():
    biased = layers.Dense.Params(name='biased', input_dim=16, units=8)
    norm = layers.BatchNorm.Params(name='norm', dim=8)
    assert shares(biased, norm) == [(1, 1), (1, 0.5), (1, 0.5)]
    assert shares(biased, norm, frozen=('model/biased/b', 'model/norm/scale')) == [
        (1, 1), (1, 0.5), (1, 0.5)]


def test_little_is_left_of_the_part_of_weights_with_adapters():
    adapted = dense('adapted', 16, 8, adapters=Adapters(rank=1))
    (_, (share, of_weights)) = shares(adapted)
    assert 0.5 < share < 0.7
    assert 0 < of_weights < 0.2


class Frozen(Layer):
    """A layer with a frozen matrix, of which a subclass makes something."""

    def __init__(self, params: Layer.Params, path: str = ''):
        super().__init__(params, path)
        self.add_weight('w', [16, 3], is_trainable=False)

    def cost(self, x):
        return layers.cost.Cost(1, 0, x)


class LoopsWithoutBound(Frozen):
    def fprop(self, theta, ctx, x):
        return tf.while_loop(lambda x: tf.reduce_sum(x) < 9,
                             lambda x: [x @ theta.w @ tf.transpose(theta.w)], [x])[0]


class HasNoGradient(Frozen):
    def fprop(self, theta, ctx, x):
        return x * tf.raw_ops.AdjustSaturation(images=theta.w[None], scale=0.5)[0, :, 0]


@pytest.mark.parametrize('layer', [LoopsWithoutBound, HasNoGradient])
def test_what_cannot_be_counted_is_as_if_all_weights_trained(layer):
    assert shares(layer.Params(name='layer'))[1] == (1, 0)


@pytest.mark.parametrize(('frozen', 'num_in_backward'), [
    ((), 5), (('model/second/w',), 4), (('model/third/w',), 4),
    (('model/second/w', 'model/third/w'), 3), (('model/first/w',), 3),
    (('model/first/w', 'model/second/w'), 1)])
def test_the_tasks_of_a_step_have_the_products_that_a_plan_counts(frozen, num_in_backward):
    network = made(FIRST, dense('second', 16, 16), dense('third', 16, 8))
    elements = wire(network, MICRO_BATCH_SPEC, lambda path: path in frozen)
    planned = sum(2 * backward_share(element) * element.has_backward for element in elements[:-1])
    if 'model/first/w' not in frozen:
        planned -= 1   # Plans count a gradient of the mini-batch, which nobody wants.
    assert planned == num_products(network, Cell(0, elements, 'CPU:0')) == num_in_backward


def num_products(network: Sequential, cell: Cell) -> int:
    """Returns how many matrix products the backward of a cell has."""
    shapes = {weight.path: weight.shape for weight in network.weights()}
    forward = trace_forward(cell, lambda path: tf.zeros(shapes[path]), TracingOptions(
        training=True, recomputation=Recomputation(('none',))))
    task = trace_cell(forward, NoAccumulators(), [], ['F', 'B']).tasks['B']
    types = collections.Counter(op.type for op in task.function.graph.get_operations())
    return types['MatMul']


def test_a_frozen_middle_goes_to_a_cell_with_more_layers():
    network = FIRST, *(dense(f'layer_{i}', 16, 16) for i in range(10)), dense('last', 16, 8)
    plan = functools.partial(plan_of, *network, num_cells=2, num_micro_batches=4, recompute='none')
    assert plan().partition.layers_per_cell == (6, 7)
    frozen = tuple(f'model/layer_{i}/w' for i in range(5))
    assert plan(frozen=frozen).partition.layers_per_cell == (7, 6)
