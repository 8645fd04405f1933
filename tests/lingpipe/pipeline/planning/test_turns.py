"""gpipe, 1f1b and forward against literal grids."""

import pytest

from lingpipe.pipeline.planning.drawing import grid
from lingpipe.pipeline.planning.schedules import make_schedule
from tests.support.schedule_grids import draw


@pytest.mark.parametrize(
    'name, num_cells, num_micro_batches, expected',
    [
        (
            'gpipe',
            3,
            4,
            """F0 F1 F2 F3 .. .. B0 B1 .. B2 .. B3
               .. F0 F1 F2 F3 B0 B1 .. B2 .. B3 ..
               .. .. B0 -- B1 -- B2 -- B3 -- .. ..""",
        ),
        (
            '1f1b',
            3,
            4,
            """F0 F1 F2 .. .. B0 F3 B1 .. B2 .. B3
               .. F0 F1 .. B0 F2 B1 F3 B2 .. B3 ..
               .. .. B0 -- B1 -- B2 -- B3 -- .. ..""",
        ),
        (
            '1f1b',
            4,
            6,
            """F0 F1 F2 F3 .. .. .. B0 F4 B1 F5 B2 .. B3 .. B4 .. B5
               .. F0 F1 F2 .. .. B0 F3 B1 F4 B2 F5 B3 .. B4 .. B5 ..
               .. .. F0 F1 .. B0 F2 B1 F3 B2 F4 B3 F5 B4 .. B5 .. ..
               .. .. .. B0 -- B1 -- B2 -- B3 -- B4 -- B5 -- .. .. ..""",
        ),
        (
            '1f1b',
            3,
            2,
            """F0 F1 .. .. .. B0 .. B1
               .. F0 F1 .. B0 .. B1 ..
               .. .. B0 -- B1 -- .. ..""",
        ),
        (
            'forward',
            3,
            4,
            """F0 F1 F2 F3 .. ..
               .. F0 F1 F2 F3 ..
               .. .. F0 F1 F2 F3""",
        ),
        ('gpipe', 1, 3, 'B0 -- B1 -- B2 --'),
        ('1f1b', 1, 3, 'B0 -- B1 -- B2 --'),
        ('forward', 1, 3, 'F0 F1 F2'),
    ],
)
def test_grid(name, num_cells, num_micro_batches, expected):
    assert grid(make_schedule(name, num_cells, num_micro_batches)) == draw(expected)


def test_frozen_cells_have_no_backward_and_run_ahead():
    assert grid(make_schedule('1f1b', 3, 4, backward_cells={1})) == draw(
        """F0 F1 F2 F3 .. .. .. .. .. .. ..
           .. F0 F1 .. B0 F2 B1 F3 B2 .. B3
           .. .. B0 -- B1 -- B2 -- B3 -- .."""
    )


@pytest.mark.parametrize('name', ['gpipe', '1f1b'])
def test_backwards_ascend_on_every_device(name):
    """Gradients are thus summed in the same order for every schedule."""
    for num_cells in range(1, 7):
        for slots in make_schedule(name, num_cells, 9).devices:
            assert [slot.micro_batch for slot in slots if slot.kind == 'B'] == list(range(9))


def test_1f1b_holds_at_most_the_cells_that_follow():
    for num_cells in range(1, 7):
        for num_micro_batches in range(1, 10):
            for k, slots in enumerate(
                    make_schedule('1f1b', num_cells, num_micro_batches).devices[:-1]):
                live = [sum(1 if slot.kind == 'F' else -1 for slot in slots[:i])
                        for i in range(len(slots) + 1)]
                assert max(live) == min(num_cells - k, num_micro_batches)
