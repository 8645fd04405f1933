"""Units: the runs of layers that stay together, and spans of units as spans of layers."""

from lingpipe.layers import Sequential
from lingpipe.pipeline.planning.dataflow import wire
from lingpipe.pipeline.planning.units import Units, units_of
from tests.support.planned_chains import MICRO_BATCH_SPEC, dense, made

# Three units of 1, 2 and 1 layers.
UNITS = Units((0, 1, 3, 4))


def test_units_are_counted():
    assert len(UNITS) == 3


def test_amounts_of_layers_are_added_up_within_units():
    assert UNITS.sums([1, 10, 100, 1000]) == [1, 110, 1000]


def test_spans_of_units_become_spans_of_layers():
    assert UNITS.layers([range(0, 2), range(2, 3)]) == (range(0, 3), range(3, 4))


def test_a_layer_is_a_unit_unless_a_sequential_keeps_it_with_others():
    """Two units that follow each other stay two."""
    def pair(name, is_unit):
        return Sequential.Params(name=name, is_unit=is_unit,
                                 layers=(dense('a', 8, 8), dense('b', 8, 8)))

    network = made(dense('in', 8, 8, reads={'x': 'image'}), pair('one', True), pair('two', True),
                   pair('free', False))
    assert units_of(wire(network, MICRO_BATCH_SPEC)).starts == (0, 1, 3, 5, 6, 7, 8)
