"""Peaks: bytes are followed from slot to slot, in schedules whose sums are counted by hand."""
import dataclasses

import pytest

from lingpipe.pipeline.planning.memory import Footprint
from lingpipe.pipeline.planning.peaks import peaks
from lingpipe.pipeline.planning.schedule import Slot
from lingpipe.pipeline.planning.schedules import make_schedule


def test_what_a_backward_makes_again_counts_while_it_runs():
    """First gpipe on two devices, and then all slots in one list.

    In that list the last cell works while the first one holds all micro-batches.
    """
    footprints = [Footprint(fixed=1000, held=10, working=100),
                  Footprint(fixed=2000, held=20, working=400)]
    schedule = make_schedule('gpipe', 2, 3)
    assert peaks(schedule, footprints) == [1000 + 30 + 100, 2000 + 20 + 400]
    order = [Slot(kind, k, m) for kind, k in (('F', 0), ('B', 1), ('B', 0)) for m in range(3)]
    one_list = dataclasses.replace(schedule, devices=(tuple(order),))
    assert peaks(one_list, footprints) == [3000 + 30 + 20 + 400]


# What a cell holds, works with, hands over and makes of that, so that every sum tells its parts.
SPLIT = Footprint(fixed=1000, held=10, working=100, handed=7, gradients=3)


@pytest.mark.parametrize(('order', 'expected'), [
    ('F0 F1 B0 B1', 20 + 100),
    ('F0 F1 B0 W0 B1 W1', 20 + 100 + 3),
    ('F0 F1 B0 B1 W0 W1', 20 + 100 + 3),        # B0 gives back more than it hands over.
    ('F0 B0 F1 B1 W0 W1', 10 + 7 + 100 + 3),
    ('F0 F1 R0 R1 B0 B1', 20 + 200),
    ('F0 F1 R0 B0 W0 R1 B1 W1', 20 + 100 + 3),
    ('F0 F1 R0 B0 R1 B1 W0 W1', 20 + 100 + 3),
])
def test_bytes_are_followed_from_slot_to_slot(order, expected):
    schedule = of_first_cell(order)
    assert peaks(schedule, [SPLIT, Footprint()], [0])[0] == 1000 + expected


def test_a_cell_whose_inputs_want_no_gradient_leaves_its_backward_to_w():
    footprint = Footprint(fixed=1000, held=10, working=100, handed=7, gradients=3,
                          gives_gradients=False)
    assert peaks(of_first_cell('F0 F1 B0 B1 W0 W1'), [footprint, Footprint()], [0])[0] == (
        1000 + 20 + 100)
    assert peaks(of_first_cell('F0 R0 B0 F1 R1 B1 W0 W1'), [footprint, Footprint()], [0])[0] == (
        1000 + 20 + 200)


def test_the_last_cell_hands_over_what_its_forward_made():
    """The forward is a part of B, so that without gradients of inputs W takes all residuals."""
    schedule = of_first_cell('F0 B0 F1 B1', last='B0 B1 W0 W1')
    last = Footprint(held=10, working=50, residual=55, handed=30, gradients=5)
    assert peaks(schedule, [SPLIT, last], [1])[1] == 30 + 10 + 50 + 5
    alone = Footprint(held=10, working=50, residual=55, handed=30, gradients=5,
                      gives_gradients=False)
    assert peaks(schedule, [SPLIT, alone], [1])[1] == 55 + 10 + 50


def of_first_cell(order, last='B0 B1'):
    """A schedule of two cells and two micro-batches, with these slots."""
    devices = tuple(tuple(Slot(slot[0], k, int(slot[1])) for slot in slots.split())
                    for k, slots in enumerate((order, last)))
    return dataclasses.replace(make_schedule('1f1b', 2, 2), devices=devices)
