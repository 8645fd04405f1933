"""Forward trace: the layers of a cell in one graph, each value with a tensor of its own."""
from __future__ import annotations

import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.pipeline.execution.forward_trace import ForwardTrace, TracingOptions, trace_forward
from lingpipe.pipeline.execution.mean_weight import MEAN_WEIGHT
from lingpipe.pipeline.planning.cell import Cell, leaves_of
from lingpipe.pipeline.planning.dataflow import wire
from lingpipe.pipeline.planning.fitting_modes import Recomputation

SPEC = {'x': tf.TensorSpec([2, 3]), 'target': tf.TensorSpec([2, 3])}


class Same(Layer):
    """Returns the tensor that it reads."""

    def fprop(self, theta, ctx, x):
        return x

    def cost(self, x):
        return Cost(0, 0, x)


def cells() -> tuple[Cell, Cell]:
    """Two cells: a layer that returns its input, and the rest with the loss."""
    network = Sequential.Params(name='model', layers=(
        Same.Params(name='same'),
        layers.Dense.Params(name='out', input_dim=3, units=3),
        layers.MeanSquaredErrorLoss.Params(name='loss'))).instantiate('model')
    elements = wire(network, SPEC)
    return Cell(0, elements[:1], 'CPU:0'), Cell(1, elements[1:], 'CPU:1')


def traced(cell: Cell, **options) -> ForwardTrace:
    return trace_forward(cell, lambda path: tf.zeros([3, 3] if path.endswith('w') else [3]),
                         TracingOptions(training=True, **options))


def test_the_forward_tells_what_a_cell_emits_before_there_are_accumulators():
    first, last = cells()
    assert traced(first).layout.num_scalars == 0
    layout = traced(last).layout
    assert layout.losses == layout.weights == (('model/loss', 'loss'),)


def test_without_emissions_nothing_is_laid_out():
    assert traced(cells()[1], has_emissions=False).layout.num_scalars == 0


def test_a_layer_that_returns_its_input_gives_the_next_layer_another_tensor():
    first, last = cells()
    trace = traced(Cell(0, [*first.elements, *last.elements], 'CPU:0'))
    same, out, _ = trace.results
    given, = same.call.inputs.values()
    taken, = out.call.inputs.values()
    assert same.written['x'] is given and taken is not given


def test_there_is_a_placeholder_for_each_input_and_for_the_mean_weight():
    _, last = cells()
    assert set(traced(last).arguments.inputs) == {*leaves_of(last.inputs), MEAN_WEIGHT}


def test_weights_are_those_of_the_layers():
    assert [tuple(weight.shape) for weight in traced(cells()[1]).weights] == [(3, 3), (3,)]


@pytest.mark.parametrize(('recomputation', 'mode'), [
    (None, 'none'), (Recomputation(('cell', 'layer')), 'layer')])
def test_a_cell_has_a_mode_of_its_own(recomputation, mode):
    assert TracingOptions(True, recomputation=recomputation).mode(cells()[1]) == mode


def test_xla_compiles_the_tasks_of_a_tpu_always():
    on_tpu = Cell(0, cells()[0].elements, '/device:TPU:0')
    assert TracingOptions(True).is_compiled_by_xla(on_tpu)
    assert not TracingOptions(True).is_compiled_by_xla(cells()[0])
    assert TracingOptions(True, jit_compile=True).is_compiled_by_xla(cells()[0])
