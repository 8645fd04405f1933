"""Schedules against literal grids, and of every size against the validator."""

import re
from itertools import combinations

import pytest

from lingpipe.pipeline.planning.schedules import TRAINING, make_schedule
from lingpipe.pipeline.planning.validation import validate

NAMES = (*TRAINING, 'forward')


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
