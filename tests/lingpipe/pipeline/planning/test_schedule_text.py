"""Schedule text: what is drawn can be read again, and what is none is refused."""

import re

import pytest

from lingpipe.pipeline.planning.drawing import grid
from lingpipe.pipeline.planning.schedule import Slot
from lingpipe.pipeline.planning.schedule_text import layout_in, parse_schedule
from lingpipe.pipeline.planning.schedules import TRAINING, make_schedule
from lingpipe.pipeline.planning.validation import validate


@pytest.mark.parametrize('name', [*TRAINING, 'forward'])
def test_what_is_drawn_can_be_read_again(name):
    for num_cells in (1, 2, 3, 4, 6):
        schedule = make_schedule(name, num_cells, 5)
        found = parse_schedule(grid(schedule))
        assert found.devices == schedule.devices
        assert (found.num_cells, found.num_micro_batches) == (num_cells, 5)
        assert found.backward_cells == schedule.backward_cells


def test_only_the_order_in_a_row_counts():
    text = """# two cells, one micro-batch
        F0 .. .. R0 B0 W0

        .. B0 --
        step 6   bubble 20%"""
    schedule = parse_schedule(text)
    assert schedule.devices == ((Slot('F', 0, 0), Slot('R', 0, 0), Slot('B', 0, 0),
                                 Slot('W', 0, 0)), (Slot('B', 1, 0),))
    assert parse_schedule('F0 R0 B0 W0; B0') == schedule


def test_the_layout_is_that_of_the_rows():
    schedule = parse_schedule('F1.0 B2.0 B1.0; F0.0 B0.0')
    validate(schedule)
    assert layout_in(schedule) == (1, 0, 0)


def test_a_cell_without_b_has_no_backward():
    assert parse_schedule('F0 F1; B0 B1').backward_cells == {1}


@pytest.mark.parametrize('text, sentence', [
    ('', 'the schedule has no slots; write a row of slots such as F0 B0 for each device'),
    ('F0 B0\n.. ..', 'row 1 of the schedule has no slots; give its device a cell'),
    ('F0 X0', "row 0 of the schedule has 'X0'; a slot is F, B, W or R with a micro-batch, as F0"),
    ('F0 B0; b0', "row 1 of the schedule has 'b0'"),
    ('F0 B1.', "row 0 of the schedule has 'B1.'"),
])
def test_what_is_no_schedule_is_refused(text, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        parse_schedule(text)


@pytest.mark.parametrize('text, sentence', [
    ('F0 B0; F0 B1', 'has no place for F(cell 1, micro-batch 0): cell 1 is the last'),
    ('F0 B0; B1', 'lacks F(cell 0, micro-batch 1); run every slot once'),
    ('F0 F1 B1 B0; B0 B1', 'runs B(cell 0, micro-batch 1) before micro-batch 0'),
    ('B0 F0; B0', 'device 0 waits at B(cell 0, micro-batch 0) for F(cell 0, micro-batch 0)'),
])
def test_what_cannot_run_is_named_by_the_validator(text, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        validate(parse_schedule(text))
