"""Forecasts: the time of each cell, with what is repeated, and how evenly it is shared."""

import pytest

from lingpipe.pipeline.planning.fitting_modes import Recomputation
from lingpipe.pipeline.planning.forecast import Forecast
from lingpipe.pipeline.planning.layer_times import LayerTimes
from lingpipe.pipeline.planning.memory import Memory
from lingpipe.pipeline.planning.partition import Partition
from tests.support.planned_chains import CHAIN, plan_of


def costs(layers_per_cell=(3, 1), **pipeline):
    plan = plan_of(*CHAIN, num_cells=2, num_micro_batches=4, layers_per_cell=layers_per_cell,
                   **pipeline)
    forecast = plan.forecast
    return (forecast.forward_costs[0], forecast.backward_costs[0], forecast.step_costs[0],
            plan.simulate().step_s)


def test_a_layer_that_runs_again_for_itself_costs_a_forward_more_than_its_cell():
    """With 'layer', B runs the cell without its last layer, and then every layer once more.

    test_cell_trace.py counts the same in the graphs.
    """
    forward, backward, step, total = costs(recompute='cell')
    assert (backward, step) == (2 * forward, 4 * forward)
    again = costs(recompute='layer')
    last_layer = costs(recompute='none', layers_per_cell=(2, 2))[0] - forward
    assert again[:3] == (forward, 3 * forward + last_layer, 5 * forward + last_layer)
    assert again[3] > total


def test_what_layers_repeat_for_themselves_is_a_part_of_the_backward():
    seconds = dict(layer_seconds=(5.0, 7.0, 9.0, 1.0), layer_backward_seconds=(4.0, 5.0, 2.0, 0.5))
    plan = plan_of(*CHAIN, num_cells=2, num_micro_batches=4, layers_per_cell=(3, 1), **seconds,
                   recompute='layer')
    assert plan.forecast.layer_repeat_costs == [1.0 + 2.0, 0.5]


def test_measured_seconds_of_the_backward_are_taken_as_they_are():
    seconds = dict(layer_seconds=(5.0, 7.0, 9.0, 1.0), layer_backward_seconds=(4.0, 5.0, 2.0, 0.5))
    assert costs(recompute='none', **seconds)[:3] == (10.0, 11.0, 21.0)
    assert costs(recompute='layer', **seconds)[:3] == (10.0, 14.0, 34.0)
    assert (costs(recompute='none', layer_seconds=(3.0, 6.0, 9.0, 3.0))[:2]
            == pytest.approx((6.0, 12.0)))


def test_balance_is_the_mean_cell_over_the_largest():
    """The cells of one layer and of three take 3 and 9."""
    elements = plan_of(*CHAIN, num_micro_batches=4).elements
    times = LayerTimes(forward=(1,) * 4, backward=(2,) * 4, weight=(0,) * 4,
                       repeated=(1,) * 4)
    partition = Partition(elements, (range(0, 1), range(1, 4)))
    memory = Memory(elements, residuals=list)
    assert Forecast(partition, times, memory, Recomputation(('none', 'none'))).balance == 6 / 9


def test_a_cell_without_backward_repeats_nothing():
    plan = plan_of(*CHAIN, num_cells=3, num_micro_batches=4, layers_per_cell=(1, 1, 2),
                   layer_seconds=(3.0, 6.0, 9.0, 3.0),
                   layer_backward_seconds=(2.0, 4.0, 6.0, 2.0), frozen=('model/a/w',))
    assert plan.forecast.step_costs == [3.0, 2.0 + 2.0 + 4.0, 3.0 + 6.0 + 1.0 + 2.0]
