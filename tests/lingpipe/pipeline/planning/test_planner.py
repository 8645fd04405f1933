"""Planner: the same cuts for other mini-batches, and why there is no plan."""
import re

import pytest
import tensorflow as tf

from lingpipe.pipeline.planning.planner import plan_like
from tests.support.planned_chains import CHAIN, SPEC, made, plan_of

NETWORK = made(*CHAIN)


def plan_of_two_cells(**pipeline):
    return plan_of(NETWORK, **{'num_cells': 2, 'num_micro_batches': 4, 'layers_per_cell': (3, 1),
                               **pipeline})


def spec_of(num_examples):
    return {name: tf.TensorSpec([num_examples, *spec.shape[1:]], spec.dtype)
            for name, spec in SPEC.items()}


def test_a_plan_for_other_mini_batches_has_the_same_cuts_on_the_same_devices():
    plan = plan_of_two_cells(devices=['CPU:2', 'CPU:1'])
    other = plan_like(plan, NETWORK, spec_of(32))
    assert other.partition.layers_per_cell == (3, 1)
    assert other.placement == plan.placement
    assert other.schedule == plan.schedule


def test_a_plan_for_other_mini_batches_is_wired_for_their_shape():
    other = plan_like(plan_of_two_cells(), NETWORK, spec_of(32))
    assert other.elements[0].reads['x'].spec == tf.TensorSpec([8, 8])


@pytest.mark.parametrize(('pipeline', 'num_examples', 'sentence'), [
    ({}, 18, 'num_micro_batches=4 does not divide the batch of 18 examples; use 1, 2, 3, 6, 9'),
    ({'device_bytes': 20_000.}, 1600,
     'layers_per_cell=[3, 1] needs 84,992 bytes on CPU:0, which is more than device_bytes=20,000'),
])
def test_a_plan_for_other_mini_batches_is_refused_if_they_do_not_fit(pipeline, num_examples,
                                                                     sentence):
    plan = plan_of_two_cells(**pipeline)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        plan_like(plan, NETWORK, spec_of(num_examples))


@pytest.mark.parametrize(('pipeline', 'sentence'), [
    ({'num_micro_batches': 3}, 'num_micro_batches=3 does not divide the batch of 16 examples'),
    ({'layers_per_cell': (4,)}, 'layers_per_cell=[4] names 1 cell, but num_cells=2'),
    ({'layers_per_cell': (1, 1)}, 'layers_per_cell=[1, 1] adds up to 2, but the network has 4'),
    ({'device_bytes': 5_000.},
     'layers_per_cell=[3, 1] needs 8,960 bytes on CPU:0, which is more than device_bytes=5,000'),
])
def test_a_plan_that_cannot_be_made_is_refused(pipeline, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        plan_of_two_cells(**pipeline)
