"""Playing: when slots run, and which devices wait."""

import re

import pytest

from lingpipe.pipeline.planning.dependencies import chain
from lingpipe.pipeline.planning.playing import backwards_that_wait, play
from lingpipe.pipeline.planning.schedule import Schedule, Slot
from lingpipe.pipeline.planning.schedules import make_schedule


def test_a_backward_also_waits_if_it_only_does_once_the_one_before_has_an_r():
    """B take 3, of which R saves 1: without an R, B(0, 1) would start when B(0, 0) ends.

        F0 F1 F2 R0 B0 -- R1 B1 -- R2 B2 --
        .. B0 -- -- B1 -- -- B2 -- -- .. ..
    """
    waiting = backwards_that_wait(
        make_schedule('gpipe', 2, 3), lambda slot: 3.0 if slot.kind == 'B' else 1.0,
        lambda slot: (1.0, 2.0) if slot.kind == 'B' and slot.cell == 0 else None, chain(2),
        lambda sender, receiver: 0.0)
    assert waiting == {Slot('B', 0, 0), Slot('B', 0, 1), Slot('B', 0, 2)}


def test_a_slot_starts_when_its_device_is_free_and_what_it_needs_has_ended():
    """Forwards take 1, the last cell's B takes 3 and the other cell's B takes 2."""
    schedule = make_schedule('gpipe', 2, 2)
    spans = play(schedule, lambda slot: {('F', 0): 1, ('B', 1): 3, ('B', 0): 2}[slot[:2]])
    assert spans == {
        Slot('F', 0, 0): (0, 1),
        Slot('F', 0, 1): (1, 2),
        Slot('B', 1, 0): (1, 4),
        Slot('B', 1, 1): (4, 7),
        Slot('B', 0, 0): (4, 6),
        Slot('B', 0, 1): (7, 9),
    }


def test_a_slot_starts_when_the_last_of_its_needs_has_arrived():
    schedule = make_schedule('forward', 3, 1)

    def arrival_of(maker, reader, end):
        return end + {(0, 1): 1, (1, 2): 2, (0, 2): 9}[maker.cell, reader.cell]

    spans = play(schedule, lambda slot: 1, {(0, 1), (1, 2), (0, 2)}, arrival_of)
    assert spans == {
        Slot('F', 0, 0): (0, 1), Slot('F', 1, 0): (2, 3), Slot('F', 2, 0): (10, 11)}


def test_devices_that_wait_for_each_other_are_refused():
    one_device = ((Slot('F', 1, 0), Slot('F', 0, 0)),)
    schedule = Schedule('reversed', 2, 1, one_device, frozenset())
    sentence = ("schedule 'reversed' deadlocks: device 0 waits at F(cell 1, micro-batch 0) for "
                'F(cell 0, micro-batch 0), which can never start')
    with pytest.raises(ValueError, match=re.escape(sentence)):
        play(schedule, lambda slot: 1)
