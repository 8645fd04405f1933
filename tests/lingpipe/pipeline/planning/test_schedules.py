"""Schedules against literal grids, and of every size against the validator."""

import re
from itertools import combinations

import pytest

from lingpipe.pipeline.planning.drawing import grid
from lingpipe.pipeline.planning.schedules import TRAINING, make_schedule
from lingpipe.pipeline.planning.validation import validate
from tests.support.schedule_grids import draw

NAMES = (*TRAINING, 'forward')


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


def test_the_last_cell_has_a_backward_even_if_nothing_trains():
    assert make_schedule('gpipe', 2, 3, backward_cells=()).backward_cells == {1}


@pytest.mark.parametrize('name', NAMES)
def test_every_size_and_every_frozen_prefix_is_valid(name):
    for num_cells in range(1, 7):
        for num_micro_batches in range(1, 10):
            for first in range(num_cells):
                validate(make_schedule(name, num_cells, num_micro_batches, range(first, num_cells)))


@pytest.mark.parametrize('name', NAMES)
def test_every_set_of_skip_connections_is_valid(name):
    for num_cells in range(1, 5):
        pairs = list(combinations(range(num_cells), 2))
        for size in range(len(pairs) + 1):
            for edges in combinations(pairs, size):
                for trained in range(2**num_cells):
                    cells = [k for k in range(num_cells) if trained >> k & 1]
                    validate(make_schedule(name, num_cells, 5, cells), edges)


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


@pytest.mark.parametrize(
    'arguments, sentence',
    [(('gpip', 2, 2),
      "schedule 'gpip' is unknown; did you mean 'gpipe'? Use one of gpipe, 1f1b, "
      'interleaved, zb_h1, zb_h2, zb_v, v_half, v_min, dual_pipe_v, forward'),
     (('1F1B', 2, 2), "did you mean '1f1b'?"),
     (('gpipe', 0, 2), 'num_cells=0 makes no pipeline; use 1 or more'),
     (('forward', 2, 0), 'num_micro_batches=0 makes no pipeline; use 1 or more'),
     (('1f1b', 2, 2, {2}), 'backward_cells has cell 2 of 2; use cells 0 to 1'),],
)
def test_errors_of_make_schedule(arguments, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        make_schedule(*arguments)
