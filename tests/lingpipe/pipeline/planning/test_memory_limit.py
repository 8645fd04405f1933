"""Memory limit: the bytes of every span of layers that could be a cell, by hand."""

import itertools

import pytest

from lingpipe.pipeline.planning.memory import Footprint
from lingpipe.pipeline.planning.memory_limit import Needs


class Element:
    """What Needs asks of an element."""

    def __init__(self, has_backward):
        self.has_backward = has_backward


class FourLayers:
    """A memory of layers with 10, 20, 30 and 40 bytes of weights.

    The first and the third have no backward. Whatever a cell holds, it keeps 1 byte for each live
    micro-batch.
    """

    elements = [Element(has_backward) for has_backward in (False, True, False, True)]

    def __init__(self, received=0):
        self.received = received

    def growing(self, start, mode):
        for fixed in itertools.accumulate((10, 20, 30, 40)[start:]):
            yield Footprint(fixed=fixed, held=1, received=self.received)


def needs_of(starts=(0, 1, 2, 3, 4), most=1000, received=0):
    """Returns the needs of two cells, which have 3 live micro-batches and 1."""
    return Needs(FourLayers(received), ['none', 'none'], starts, live=[3, 1], most=most)


@pytest.mark.parametrize(('k', 'start', 'expected'), [
    (0, 0, [10 + 1, 30 + 3, 60 + 3, 100 + 3]),   # No backward, then one.
    (1, 0, [10 + 1, 30 + 1, 60 + 1, 100 + 1]),
    (0, 2, [30 + 1, 70 + 3]),
])
def test_a_cell_needs_its_weights_and_what_its_live_micro_batches_hold(k, start, expected):
    assert needs_of().of(k, start).tolist() == expected


def test_a_cell_needs_what_it_receives_if_that_is_more():
    assert needs_of(received=2).of(0, 0).tolist() == [10 + 2, 30 + 3, 60 + 3, 100 + 3]


def test_cells_hold_whole_units():
    assert needs_of(starts=(0, 2, 4)).of(0, 0).tolist() == [30 + 3, 100 + 3]


def test_cells_whose_weights_alone_are_too_many_are_left_out():
    assert needs_of(most=60).of(0, 0).tolist() == [10 + 1, 30 + 3, 60 + 3]


@pytest.mark.parametrize(('start', 'limit', 'stops'), [
    (0, 33, {1, 2}),
    (0, 32, {1}),
    (1, 53, {2, 3}),
    (0, 5, set()),
])
def test_stops_are_the_layers_before_which_a_cell_that_fits_may_end(start, limit, stops):
    assert needs_of().stops(0, start, limit) == sum(1 << stop for stop in stops)


def test_the_least_that_fits_is_the_fullest_cell_of_the_best_partition():
    """Cuts after 1, 2 and 3 layers need 91, 71 and 63 on the fuller device."""
    assert needs_of().least() == 63


def test_the_largest_unit_is_the_one_that_needs_most_where_it_needs_least():
    assert needs_of().largest_unit() == (40 + 1, 3)
