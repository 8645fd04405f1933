"""Measured costs: seconds of the forward and of the backward of each layer."""

from lingpipe.pipeline.execution.measured_costs import layer_seconds
from tests.support.planned_chains import CHAIN, plan_of


def test_a_measurement_times_forward_and_backward_of_each_layer_apart():
    plan = plan_of(*CHAIN, num_micro_batches=4, frozen=('model/a/w',))
    measured = layer_seconds(plan.elements, ['CPU:0', 'CPU:1'], repeats=2)
    assert [backward > 0 for _, backward in measured] == [False, True, True, True]
    assert all(forward > 0 for forward, _ in measured)


def test_a_layer_that_shares_a_weight_is_measured_without_the_owner():
    first, middle, last = CHAIN
    again = middle.copy().set(name='again', share={'w': 'model/b/w'})
    elements = plan_of(first, middle, again, last).elements
    (forward, backward), = layer_seconds(elements[2:3], ['CPU:1'], repeats=2)
    assert forward > 0 and backward > 0


def test_layers_between_which_others_are_left_out_are_measured():
    elements = plan_of(*CHAIN).elements
    measured = layer_seconds([elements[0], elements[2]], ['CPU:0'], repeats=1)
    assert len(measured) == 2
    assert all(forward > 0 and backward > 0 for forward, backward in measured)


def test_devices_beyond_the_number_of_layers_measure_too():
    elements = plan_of(*CHAIN).elements
    measured = layer_seconds(elements[1:2], ['CPU:0', 'CPU:1'], repeats=1, budget_s=0.)
    (forward, backward), = measured
    assert forward > 0 and backward > 0
