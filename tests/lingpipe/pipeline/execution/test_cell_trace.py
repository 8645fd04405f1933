"""Cell trace: what tracing a cell finds, and that it depends only on its arguments."""
from __future__ import annotations

import collections
import functools
from collections.abc import Collection

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.cell_trace import CellTrace, trace_cell
from lingpipe.pipeline.execution.forward_trace import ForwardTrace, TracingOptions, trace_forward
from lingpipe.pipeline.planning.cell import Cell, leaves_of
from lingpipe.pipeline.planning.dataflow import wire
from lingpipe.pipeline.planning.fitting_modes import Recomputation
from lingpipe.pricing import ancestors
from lingpipe.tools import stacks

SPEC = {'x': tf.TensorSpec([2, 3]), 'target': tf.TensorSpec([2, 3]), 'weight': tf.TensorSpec([2])}


class Prints(Layer):
    """Returns x, and prints it."""

    def fprop(self, theta, ctx, x):
        tf.print('seen')
        return tf.identity(x)

    def cost(self, x):
        return Cost(0, 0, x)


def cells(*extra: Layer.Params) -> tuple[Cell, Cell, dict[str, tf.Variable]]:
    """Returns two cells and their weights: a tanh layer, and the rest with the loss."""
    network = Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='in', input_dim=3, units=3, activation='tanh'),
        layers.Dense.Params(name='out', input_dim=3, units=3), *extra,
        layers.MeanSquaredErrorLoss.Params(name='loss'))).instantiate('model')
    elements = wire(network, SPEC)
    weights = {w.path: tf.Variable(w.initial_value(0)) for w in network.weights()}
    return Cell(0, elements[:1], 'CPU:0'), Cell(1, elements[1:], 'CPU:0'), weights


def traced(cell: Cell, weights: dict[str, tf.Variable], kinds: Collection[str] = ('F', 'B'),
           **options: object) -> tuple[ForwardTrace, Accumulators, CellTrace]:
    def read(path: str) -> tf.Tensor:
        return tf.raw_ops.ReadVariableOp(resource=weights[path].handle, dtype=tf.float32)

    forward = trace_forward(cell, read, TracingOptions(**{'training': True, **options}))
    trained = [weight for element in cell.elements for weight in element.trained]
    accumulators = Accumulators('CPU:0', trained, forward.layout)
    return forward, accumulators, trace_cell(forward, accumulators, leaves_of(cell.outputs), kinds)


def test_the_last_cell_of_training_is_one_task():
    _, last, weights = cells()
    _, _, trace = traced(last, weights, ['B'])
    assert trace.tasks.keys() == {'B'}
    assert set(trace.tasks['B'].differentiated) == {'model/out/w', 'model/out/b'}
    assert [value.name for value, _ in trace.gradients_out] == ['x']


def test_without_backward_there_is_no_gradient():
    first, _, weights = cells()
    trace = traced(first, weights, ['F'], training=False)[2]
    assert trace.tasks.keys() == {'F'} and trace.gradients_out == []


@pytest.mark.parametrize(('recompute', 'keeps'),
                         [('none', True), ('cell', False), ('layer', False)])
def test_only_without_recomputation_the_forward_hands_tensors_to_the_backward(recompute, keeps):
    first, _, weights = cells()
    tasks = traced(first, weights, recomputation=Recomputation((recompute,)))[2].tasks
    assert tasks['F'].residuals_out == tasks['B'].residuals_in
    assert bool(tasks['B'].residuals_in) == keeps


@pytest.mark.parametrize('recompute', ['none', 'cell', 'layer'])
def test_the_tasks_compute_the_layer_and_its_gradient(recompute):
    first, _, weights = cells()
    _, accumulators, trace = traced(first, weights, recomputation=Recomputation((recompute,)))
    x, gradient = np.random.default_rng(0).standard_normal([2, 2, 3]).astype(np.float32)
    position = [tf.constant(0, tf.int64), tf.constant(0)]
    forward, backward = trace.tasks['F'], trace.tasks['B']
    y, *residuals, _ = forward.function(*position, tf.constant(x))
    given = [tf.constant(x)] * len(backward.inputs) + [tf.constant(gradient)]
    backward.function(*position, *given, *residuals)

    w, b = weights['model/in/w'].numpy(), weights['model/in/b'].numpy()
    np.testing.assert_allclose(y, np.tanh(x @ w + b), rtol=1e-5, atol=1e-6)
    before_tanh = gradient * (1 - np.tanh(x @ w + b) ** 2)
    np.testing.assert_allclose(accumulators.gradients['model/in/w'], x.T @ before_tanh, atol=1e-5)
    np.testing.assert_allclose(accumulators.gradients['model/in/b'], before_tanh.sum(0), atol=1e-5)


def test_a_cell_may_be_traced_again_in_any_order():
    first, last, weights = cells()

    def ops(order: list[Cell]) -> dict[int, list[str]]:
        return {cell.index: [op.type for op in
                             traced(cell, weights, ['B'] if cell is last else ['F', 'B']
                                    )[0].graph.get_operations()]
                for cell in order}

    assert ops([first, last]) == ops([last, first])


def test_what_prints_is_remarked():
    first, last, weights = cells(Prints.Params(name='prints'))
    assert traced(first, weights)[2].remarks == ()
    remark, = traced(last, weights, ['B'])[2].remarks
    assert remark.startswith('model/prints.')


def four_layers(is_last: bool) -> tuple[Cell, dict[str, tf.Variable]]:
    """A cell of four Dense layers, the last of which has a loss.

    Each layer has one product forward and two backward. The first layer of a first cell has only
    one product backward, since nobody asks for the gradient of its input.
    """
    network = Sequential.Params(name='model', layers=(
        *[layers.Dense.Params(name=f'dense_{i}', input_dim=3, units=3, activation='tanh')
          for i in range(8)],
        layers.MeanSquaredErrorLoss.Params(name='loss'))).instantiate('model')
    elements = wire(network, SPEC)
    weights = {w.path: tf.Variable(w.initial_value(0)) for w in network.weights()}
    return Cell(int(is_last), elements[4:] if is_last else elements[:4], 'CPU:0'), weights


@pytest.mark.parametrize(('recompute', 'first', 'last'), [
    ('none', 7, 4 + 8), ('cell', 4 + 7, 4 + 8), ('layer', 3 + 4 + 7, 4 + 4 + 8)])
def test_a_backward_task_has_the_matrix_products_that_the_forecast_counts(recompute, first, last):
    for is_last, num_products in ((False, first), (True, last)):
        cell, weights = four_layers(is_last)
        kinds = ['B'] if is_last else ['F', 'B']
        _, _, trace = traced(cell, weights, kinds,
                             recomputation=Recomputation((recompute,) * 2))
        ops = trace.tasks['B'].function.graph.get_operations()
        assert sum(op.type == 'MatMul' for op in ops) == num_products


@pytest.mark.parametrize(('recompute', 'begin', 'expected'), [
    ('none', 'TanhGrad', [0, 2, 4, 6]),
    ('cell', 'TanhGrad', [0, 2, 4, 6]),
    # Three layers run to make the inputs of others, and then four for their gradients.
    ('layer', 'Tanh', [0, 0, 0] + [0, 2, 4, 6])])
def test_a_backward_begins_once_the_gradients_of_the_next_layer_have_been_added(
        recompute, begin, expected):
    """If it did not wait, gradients and sums behind them were put off.

    They, or what they read, then stayed in memory for several layers at once.
    """
    cell, weights = four_layers(is_last=False)
    trace = traced(cell, weights, recomputation=Recomputation((recompute,) * 2))[2]
    ops = trace.tasks['B'].function.graph.get_operations()
    num_additions_before = [
        sum(before.type == 'AssignAddVariableOp' for before in ancestors(op.outputs, ()).values())
        for op in ops if op.type == begin]
    assert sorted(num_additions_before) == expected


# What a task may make once more, since it does not depend on the micro-batch or costs nothing.
FREE = {'Const', 'ReadVariableOp', 'Placeholder', 'Identity', 'NoOp'}


def transformer_cell(is_last: bool) -> Cell:
    """A cell in the middle of a Transformer, or the last one."""
    network = stacks.transformer(4, 16, 2).instantiate('model')
    elements = wire(network, {name: tf.TensorSpec([2, 4, 16]) for name in ('x', 'target')})
    return Cell(1, elements[2:] if is_last else elements[1:3], 'CPU:0')


@functools.cache
def convolution_cell(is_last: bool) -> Cell:
    """A cell in the middle of AmoebaNet-D, or the last one.

    There are skips, fused BatchNorm, pools, sums, a concatenation and, in the middle, a factorized
    reduction.
    """
    network = stacks.amoebanet(3, 8).instantiate('model')
    elements = wire(network, {'image': tf.TensorSpec([2, 32, 32, 3]), 'weight': tf.TensorSpec([2]),
                              'label': tf.TensorSpec([2], tf.int32)})
    return Cell(1, elements[-12:] if is_last else elements[13:25], 'CPU:0')


def keras_cell(is_last: bool) -> Cell:
    """A cell of a Keras layer with state, or the same with a loss."""
    network = Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='in', input_dim=3, units=3),
        layers.KerasLayer.Params(name='keras', class_name='BatchNormalization', input_shape=(3,),
                                 averages_state=True),
        layers.Dense.Params(name='out', input_dim=3, units=3, activation='gelu'),
        layers.MeanSquaredErrorLoss.Params(name='loss'))).instantiate('model')
    elements = wire(network, SPEC)
    return Cell(1, elements[1:] if is_last else elements[1:3], 'CPU:0')


@pytest.mark.parametrize('recompute', ['none', 'cell', 'layer'])
@pytest.mark.parametrize('make_cell', [transformer_cell, convolution_cell, keras_cell])
@pytest.mark.parametrize('is_last', [False, True])
def test_tasks_of_a_micro_batch_share_no_op_that_costs_time(make_cell, is_last, recompute):
    cell = make_cell(is_last)
    chains = [['B_split', 'W']]
    if not is_last and recompute == 'none':
        chains = [['F', 'B'], ['F', 'B_split', 'W']]
    elif not is_last:
        chains += [['R', 'B_after_R'], ['R', 'B_split_after_R', 'W_after_R']]
    kinds = {kind for chain in chains for kind in chain}
    if not is_last:
        kinds.add('F')
    weights = {weight.path: tf.Variable(tf.zeros(weight.shape, weight.dtype))
               for element in cell.elements for weight in element.layer.weights()}

    tasks = traced(cell, weights, kinds,
                             recomputation=Recomputation((recompute,) * 2))[2].tasks
    for chain in chains:
        num_tasks = collections.Counter(
            op.name for kind in chain for op in tasks[kind].function.graph.get_operations()
            if op.type not in FREE)
        assert max(num_tasks.values()) == 1, [op for op, n in num_tasks.items() if n > 1]
