"""Plans: immutable values that hold the cells, and the same cuts for other mini-batches."""

import dataclasses
import re

import pytest
import tensorflow as tf

from lingpipe.pipeline.planning.drawing import grid
from lingpipe.pipeline.planning.plan import plan_like
from tests.support.planned_chains import CHAIN, SPEC, made, plan_of
from tests.support.schedule_grids import draw

NETWORK = made(*CHAIN)


def plan_of_two_cells(**pipeline):
    return plan_of(NETWORK, **{'num_cells': 2, 'num_micro_batches': 4, 'layers_per_cell': (3, 1),
                               **pipeline})


def spec_of(num_examples):
    return {name: tf.TensorSpec([num_examples, *spec.shape[1:]], spec.dtype)
            for name, spec in SPEC.items()}


@pytest.mark.parametrize('name', ['params', 'partition', 'placement', 'schedule', 'forecast'])
def test_no_field_of_a_plan_can_be_set(name):
    with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
        setattr(plan_of_two_cells(), name, None)


@pytest.mark.parametrize(('part', 'name'), [
    ('partition', 'spans'), ('placement', 'devices'), ('schedule', 'devices'),
    ('forecast', 'times'),
])
def test_no_part_of_a_plan_can_be_changed(part, name):
    part_of_plan = getattr(plan_of_two_cells(), part)
    with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
        setattr(part_of_plan, name, None)


def test_the_cells_of_every_replica_hold_the_same_layers_on_devices_of_their_own():
    plan = plan_of_two_cells(num_micro_batches=2, num_replicas=2,
                             devices=['CPU:0', 'CPU:1', 'CPU:2', 'CPU:3'])
    assert [[(cell.index, cell.device, len(cell.elements)) for cell in cells]
            for cells in plan.replicas] == [
        [(0, 'CPU:0', 3), (1, 'CPU:1', 1)], [(0, 'CPU:2', 3), (1, 'CPU:3', 1)]]


def test_layers_are_wired_for_a_micro_batch():
    assert plan_of_two_cells().elements[0].reads['x'].spec == tf.TensorSpec([4, 8])


def test_the_schedule_is_that_of_the_params():
    assert grid(plan_of_two_cells(schedule='gpipe', num_micro_batches=2).schedule) == draw(
        """F0 F1 .. B0 .. B1
           .. B0 -- B1 -- ..""")


def test_cells_that_share_a_device_are_in_one_list():
    assert len(plan_of_two_cells(devices=['CPU:0', '/cpu:0']).schedule.devices) == 1


def test_the_table_has_a_row_for_each_cell():
    """Each layer takes 3 s, and 1 s more in the first cell, which is recomputed."""
    rows = plan_of_two_cells(layer_seconds=(3., 3., 3., 3.)).rows()
    assert [(row['cell'], row['device'], row['num_layers'], row['layers'], row['num_weights'])
            for row in rows] == [
        (0, 'CPU:0', 3, 'model/a .. model/c', 8 * 16 + 16 * 16 + 16 * 8),
        (1, 'CPU:1', 1, 'model/loss .. model/loss', 0)]
    assert [row['step_share'] for row in rows] == [12 / 15, 3 / 15]
    assert [row['sent_mb_per_micro_batch'] for row in rows] == [4 * 8 * 4 / 1e6, 0]


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
    ({'layers_per_cell': (4,)}, 'layers_per_cell=[4] names 1 cells, but num_cells=2'),
    ({'layers_per_cell': (1, 1)}, 'layers_per_cell=[1, 1] adds up to 2, but the network has 4'),
    ({'device_bytes': 5_000.},
     'layers_per_cell=[3, 1] needs 8,960 bytes on CPU:0, which is more than device_bytes=5,000'),
])
def test_a_plan_that_cannot_be_made_is_refused(pipeline, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        plan_of_two_cells(**pipeline)


def test_transfers_count_if_the_params_say_how_fast_links_are():
    seconds = {'layer_seconds': (3.0,) * 4, 'recompute': 'none', 'num_micro_batches': 1}
    free = plan_of_two_cells(**seconds)
    sent_bytes = sum(value.num_bytes for value in free.cells[0].outputs)
    slow = plan_of_two_cells(**seconds, link_bytes_per_s=sent_bytes / 5)
    assert slow.simulate().step_s == free.simulate().step_s + 2 * 5   # there, and the gradient back


def test_auto_orders_slots_for_slow_links():
    steps = {schedule: plan_of_two_cells(schedule=schedule, layer_seconds=(3.0,) * 4,
                                         link_bytes_per_s=100.0).simulate().step_s
             for schedule in ('gpipe', '1f1b', 'zb_h1', 'auto')}
    assert steps['auto'] == min(steps.values())
    assert steps['auto'] < steps['1f1b']
