"""Drawings: timelines as shares, trace files and pictures; schedules as grids."""


import pytest

from lingpipe.pipeline.planning.drawing import Timeline, grid
from lingpipe.pipeline.planning.schedule import Schedule, Slot
from lingpipe.pipeline.planning.schedules import make_schedule
from lingpipe.pipeline.planning.simulator import simulate
from lingpipe.pipeline.planning.validation import validate
from tests.support.schedule_grids import draw

F, B = Slot('F', 0, 0), Slot('B', 1, 0)


@pytest.fixture
def measured():
    """Measured spans of two devices, on a clock that does not start at 0."""
    return Timeline({B: (101.0, 104.0), F: (100.0, 101.0)}, {F: 0, B: 1})


def test_shares_do_not_depend_on_where_the_clock_starts(measured):
    assert measured.num_devices == 2
    assert measured.step_s == 4
    assert [measured.busy_s(device) for device in (0, 1)] == [1., 3.]
    assert measured.busy_share == 4 / 8
    assert measured.bubble_share == 4 / 8


def test_chrome_trace_is_in_microseconds_from_the_first_slot(measured):
    shared = {'ph': 'X', 'pid': 7}
    assert measured.to_chrome_trace(pid=7) == [
        {**shared, 'name': 'F0', 'cat': 'forward', 'ts': 0, 'dur': 1e6, 'tid': 0,
         'args': {'cell': 0, 'micro_batch': 0}},
        {**shared, 'name': 'B0', 'cat': 'backward', 'ts': 1e6, 'dur': 3e6, 'tid': 1,
         'args': {'cell': 1, 'micro_batch': 0}},
    ]


def size_of_png(path):
    """Returns width and height in pixels, from the header."""
    data = path.read_bytes()
    assert data[:8] == b'\x89PNG\r\n\x1a\n'
    return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])


def test_pictures_alone_and_above_a_prediction(tmp_path):
    timelines = [simulate(make_schedule(name, 4, 12), [1e-3] * 4, [2e-3] * 4).timeline
                 for name in ('gpipe', '1f1b')]
    timelines[0].save_png(tmp_path / 'one.png')
    timelines[0].save_png(tmp_path / 'two.png', title='gpipe above 1f1b', other=timelines[1])
    one, two = size_of_png(tmp_path / 'one.png'), size_of_png(tmp_path / 'two.png')
    assert one[0] == two[0] == 1200
    assert two[1] > one[1]


def test_errors():
    with pytest.raises(ValueError, match='has no tasks; give the span of at least one'):
        Timeline({}, {})
    with pytest.raises(ValueError,
                       match=r'F\(cell 0, micro-batch 0\) starts at 2 s and ends at 1 s'):
        Timeline({F: (2, 1)}, {F: 0})
    with pytest.raises(ValueError, match=r'B\(cell 1, micro-batch 0\) has a span but no device'):
        Timeline({B: (1, 2)}, {F: 0})


def test_grid_with_given_slots():
    schedule = make_schedule('gpipe', 2, 2)
    assert grid(
        schedule, columns_of=lambda slot: {'F': 1, 'B': 2}[slot.kind] + schedule.is_fused(slot)
    ) == draw(
        """F0 F1 .. .. B0 -- .. B1 --
           .. B0 -- -- B1 -- -- .. .."""
    )


def test_a_whole_backward_among_split_ones_takes_the_columns_of_both():
    f0, b0, w0, last = Slot('F', 0, 0), Slot('B', 0, 0), Slot('W', 0, 0), Slot('B', 1, 0)
    schedule = Schedule('by hand', 2, 1, ((f0, b0, w0), (last,)), frozenset({0, 1}))
    assert grid(schedule) == draw(
        """F0 .. .. .. B0 W0
           .. B0 -- -- .. .."""
    )


def test_a_row_that_is_not_the_cell_of_its_number_is_drawn_with_the_cell():
    schedule = Schedule('by hand', 2, 1, ((Slot('F', 1, 0),), (Slot('F', 0, 0),)), frozenset())
    assert grid(schedule) == '..   F1.0\nF0.0 ..'


def test_several_cells_on_a_device_are_drawn_with_their_numbers():
    devices = (
        (Slot('F', 0, 0), Slot('F', 2, 0)),
        (Slot('F', 1, 0),),
    )
    schedule = Schedule('looped', 3, 1, devices, frozenset())
    validate(schedule)
    assert grid(schedule) == 'F0.0 ..   F2.0\n..   F1.0 ..'
