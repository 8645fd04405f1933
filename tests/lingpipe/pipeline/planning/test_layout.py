"""Layouts: which cells share a device."""

import pytest

from lingpipe.pipeline.planning.layout import (
    in_turn,
    layout_for,
    layout_of,
    num_devices_for,
    zigzag,
)


def test_cells_are_dealt_out_in_turn_or_there_and_back():
    assert in_turn(8, 4) == (0, 1, 2, 3, 0, 1, 2, 3)
    assert zigzag(8, 4) == (0, 1, 2, 3, 3, 2, 1, 0)
    assert zigzag(8, 2) == (0, 1, 1, 0, 0, 1, 1, 0)
    assert zigzag(3, 2) == (0, 1, 1)


@pytest.mark.parametrize('schedule, cells_per_device, expected', [
    ('1f1b', 0, 6), ('zb_h1', 0, 6), ('auto', 0, 6), ('zb_v', 0, 3), ('interleaved', 0, 3),
    ('1f1b', 2, 3), ('interleaved', 3, 2), ('zb_v', 1, 6), ('auto', 4, 2)])
def test_a_schedule_wants_as_many_devices_as_its_cells_fill(schedule, cells_per_device, expected):
    assert num_devices_for(schedule, 6, cells_per_device) == expected


def test_a_v_for_schedules_in_a_v_and_turns_for_interleaving():
    assert layout_for('zb_v', 4, 2) == layout_for('auto', 4, 2) == (0, 1, 1, 0)
    assert layout_for('interleaved', 4, 2) == layout_for('1f1b', 4, 2) == (0, 1, 0, 1)


def test_places_are_counted_as_they_appear():
    assert layout_of(['b', 'a', 'a', 'c', 'b']) == (0, 1, 1, 2, 0)
