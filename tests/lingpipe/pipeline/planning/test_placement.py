"""Placements: the devices of all cells, replica after replica, however they are spelled."""

import pytest

from lingpipe.pipeline.planning.placement import Placement, place_cells


def test_cells_are_placed_replica_after_replica():
    placement = place_cells(['CPU:3', 'CPU:2', 'CPU:1', 'CPU:0'], num_replicas=2, layout=(0, 1))
    assert placement.devices == (('CPU:3', 'CPU:2'), ('CPU:1', 'CPU:0'))


def test_cells_are_spread_on_fewer_devices_as_the_layout_says():
    placement = place_cells(['a', 'b', 'c', 'd'], num_replicas=2, layout=(0, 1, 1, 0))
    assert placement.devices == (('a', 'b', 'b', 'a'), ('c', 'd', 'd', 'c'))


def test_a_device_for_every_cell_stays_its_own_whatever_the_layout():
    placement = place_cells(['a', 'a', 'b', 'b'], num_replicas=1, layout=(0, 1, 1, 0))
    assert placement.devices == (('a', 'a', 'b', 'b'),)


def test_too_few_devices_are_refused_and_too_many_are_not_used():
    assert place_cells(['a', 'b', 'c'], 1, (0, 1)).devices == (('a', 'b'),)
    with pytest.raises(ValueError, match='4 cells of 2 replicas need at least 4 devices, but there '
                                         'are 3; name more, or use fewer cells'):
        place_cells(['a', 'b', 'c'], 2, (0, 1, 1, 0))


def test_two_spellings_of_a_device_are_one_place():
    (first, second, third), = Placement((('CPU:0', '/device:cpu:0', 'CPU:1'),)).places
    assert first == second != third


def test_cells_of_a_place_are_listed_replica_after_replica():
    placement = Placement((('CPU:0', 'CPU:1', 'CPU:0'), ('/cpu:1', '/cpu:1', '/cpu:2')))
    assert list(placement.cells_of_place.values()) == [[0, 2], [1, 0, 1], [2]]


def test_a_place_is_named_as_it_was_first_spelled():
    placement = Placement((('CPU:0', '/cpu:1'), ('/device:CPU:1', '/device:CPU:0')))
    places = placement.places[1]
    assert [placement.device_at(place) for place in places] == ['/cpu:1', 'CPU:0']
