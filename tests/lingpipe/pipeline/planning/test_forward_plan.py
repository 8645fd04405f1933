"""Forward plans: the cells of training, without backward, and with what is fetched."""

import re

import pytest
import tensorflow as tf

from lingpipe.pipeline.planning.drawing import grid
from lingpipe.pipeline.planning.forward_plan import make_forward_plan
from tests.support.planned_chains import CHAIN, SPEC, made, plan_of
from tests.support.schedule_grids import draw

NETWORK = made(*CHAIN)


def spec_of(num_examples):
    return {name: tf.TensorSpec([num_examples, *spec.shape[1:]], spec.dtype)
            for name, spec in SPEC.items()}


def forward_plan(num_examples=16, num_parts=0, fetch=(), **pipeline):
    plan = plan_of(NETWORK, **{'num_cells': 2, 'num_micro_batches': 4, 'layers_per_cell': (3, 1),
                               **pipeline})
    return make_forward_plan(plan, NETWORK, spec_of(num_examples), num_parts, fetch)


def test_an_evaluation_runs_forwards_alone():
    schedule = forward_plan().schedule
    assert grid(schedule) == draw("""F0 F1 F2 F3 ..
                                     .. F0 F1 F2 F3""")


def test_the_cells_are_those_of_training():
    assert forward_plan().partition.layers_per_cell == (3, 1)


def test_the_devices_are_those_of_the_first_replica():
    plan = forward_plan(num_replicas=2, num_micro_batches=2,
                        devices=['CPU:2', 'CPU:3', 'CPU:0', 'CPU:1'])
    assert plan.devices == ('CPU:2', 'CPU:3')
    assert [cell.device for cell in plan.cells] == ['CPU:2', 'CPU:3']


@pytest.mark.parametrize(('num_examples', 'given', 'expected'), [
    (8, 0, 4),   # Training has 4.
    (6, 0, 1),   # 4 does not divide 6.
    (6, 3, 3),
])
def test_the_number_of_micro_batches_is_given_or_trainings_if_that_divides_the_batch(
        num_examples, given, expected):
    assert forward_plan(num_examples, given).num_micro_batches == expected


@pytest.mark.parametrize(('num_examples', 'expected'), [(8, 4), (6, 2), (5, 1)])
def test_one_pipeline_in_place_of_replicas_evaluates_the_same_micro_batches(num_examples, expected):
    """Of 6 examples, two replicas made 2 micro-batches of 3, and one in their place 1 of 6."""
    for pipeline in ({'num_replicas': 2, 'num_micro_batches': 2},
                     {'num_micro_batches': 4, 'sum_groups': 2}):
        assert forward_plan(num_examples, **pipeline).num_micro_batches == expected


def test_layers_are_wired_for_the_micro_batches_of_the_evaluation():
    plan = forward_plan(num_examples=6, num_parts=3)
    assert plan.elements[0].reads['x'].spec == tf.TensorSpec([2, 8])


def test_what_is_fetched_is_an_output_of_its_cell():
    """The value x of c, in the cell of the loss, is sent to no other cell."""
    cuts = {'layers_per_cell': (2, 2)}
    assert forward_plan(**cuts).cells[1].outputs == []
    assert [str(value) for value in forward_plan(**cuts, fetch=['x']).cells[1].outputs] == ['x@2']


def test_the_last_value_of_a_name_is_fetched():
    fetched = forward_plan(fetch=['x']).fetched
    assert {name: str(value) for name, value in fetched.items()} == {'x': 'x@2'}


@pytest.mark.parametrize(('arguments', 'sentence'), [
    ({'fetch': ['y']}, "no layer writes 'y'; there are x."),
    ({'num_micro_batches': -1}, 'num_micro_batches=-1 makes no pipeline; use 1 or more.'),
    ({'num_micro_batches': 3},
     'num_micro_batches=3 does not divide the batch of 16 examples; use 1, 2, 4, 8 or 16'),
])
def test_an_evaluation_that_cannot_run_is_refused(arguments, sentence):
    plan = plan_of(NETWORK, num_cells=2, num_micro_batches=4)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        make_forward_plan(plan, NETWORK, SPEC, **arguments)
