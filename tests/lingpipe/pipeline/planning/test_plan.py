"""Plans: immutable values that hold the cells."""

import dataclasses

import pytest
import tensorflow as tf

from tests.support.planned_chains import CHAIN, made, plan_of

NETWORK = made(*CHAIN)


def plan_of_two_cells(**pipeline):
    return plan_of(NETWORK, **{'num_cells': 2, 'num_micro_batches': 4, 'layers_per_cell': (3, 1),
                               **pipeline})


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


def test_a_plan_shows_itself_in_one_line():
    """It was thousands of characters: the dataclasses of all layers, several times."""
    assert repr(plan_of_two_cells()) == (
        'Plan(cells of 3, 1 layers, schedule 1f1b, 4 micro-batches)')
    replicated = plan_of_two_cells(num_micro_batches=2, num_replicas=2,
                                   devices=['CPU:0', 'CPU:1', 'CPU:2', 'CPU:3'])
    assert repr(replicated).startswith('Plan(2 replicas, cells of 3, 1 layers, ')


def test_layers_are_wired_for_a_micro_batch():
    assert plan_of_two_cells().elements[0].reads['x'].spec == tf.TensorSpec([4, 8])


def test_a_device_needs_what_its_largest_layer_needs():
    apart = plan_of_two_cells(devices=['CPU:0', 'CPU:1'])
    of_layers = apart.forecast.memory.temporary_bytes
    first, second = max(of_layers[:3]), of_layers[3]
    assert 0 < first != second > 0
    assert list(apart.temporary_bytes().values()) == [first, second]
    assert [row['temporary_mb'] for row in apart.rows()] == [first / 1e6, second / 1e6]

    together = plan_of_two_cells(devices=['CPU:0', 'CPU:0'])
    assert list(together.temporary_bytes().values()) == [max(first, second)]
    replicas = plan_of_two_cells(num_micro_batches=2, num_replicas=2, devices=['CPU:0'] * 4)
    of_layers = replicas.forecast.memory.temporary_bytes
    assert list(replicas.temporary_bytes().values()) == [2 * max(of_layers)]


def test_the_table_has_a_row_for_each_cell():
    """Each layer takes 3 s, and 1 s more in the first cell, which is recomputed."""
    rows = plan_of_two_cells(layer_seconds=(3., 3., 3., 3.)).rows()
    assert [(row['cell'], row['device'], row['num_layers'], row['layers'], row['num_weights'])
            for row in rows] == [
        (0, 'CPU:0', 3, 'model/a .. model/c', 8 * 16 + 16 * 16 + 16 * 8),
        (1, 'CPU:1', 1, 'model/loss .. model/loss', 0)]
    assert [row['step_share'] for row in rows] == [12 / 15, 3 / 15]
    assert [row['sent_mb_per_micro_batch'] for row in rows] == [4 * 8 * 4 / 1e6, 0]


def test_transfers_count_if_the_params_say_how_fast_links_are():
    seconds = {'layer_seconds': (3.0,) * 4, 'recompute': 'none', 'num_micro_batches': 1}
    free = plan_of_two_cells(**seconds)
    sent_bytes = sum(value.num_bytes for value in free.cells[0].outputs)
    slow = plan_of_two_cells(**seconds, link_bytes_per_s=sent_bytes / 5)
    assert slow.simulate().step_s == free.simulate().step_s + 2 * 5   # there, and the gradient back
