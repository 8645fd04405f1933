"""Partitions: what their cells hold and send, the schedules they get, and how one is chosen."""

import re

import pytest

from lingpipe.layers import Sequential
from lingpipe.pipeline.planning.dataflow import wire
from lingpipe.pipeline.planning.drawing import grid
from lingpipe.pipeline.planning.layer_times import LayerTimes
from lingpipe.pipeline.planning.partition import Partition, choose_partition, schedule_for
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from tests.support.planned_chains import MICRO_BATCH_SPEC, dense, elements_with_skip, made
from tests.support.schedule_grids import draw


def three_cells(*frozen):
    return Partition(elements_with_skip(*frozen), (range(0, 1), range(1, 2), range(2, 4)))


def two_cells(*frozen):
    return Partition(elements_with_skip(*frozen), (range(0, 1), range(1, 4)))


def test_a_partition_counts_its_cells_and_their_layers():
    assert (three_cells().num_cells, three_cells().layers_per_cell) == (3, (1, 1, 2))


def test_the_layers_of_a_cell_are_those_of_its_span():
    paths = [element.layer.path for element in three_cells().elements_of(2)]
    assert paths == ['model/add', 'model/loss']


def test_edges_join_makers_with_all_their_readers():
    assert three_cells().edges == {(0, 1), (0, 2), (1, 2)}


def test_values_within_a_cell_are_no_edges():
    assert two_cells().edges == {(0, 1)}


def test_cells_before_the_first_weight_that_trains_have_no_backward():
    partition = three_cells('model/in/w')
    assert [partition.has_backward(k) for k in range(3)] == [False, True, True]


@pytest.mark.parametrize(('kind', 'expected'), [
    ('gpipe', """F0 F1 F2 B0 .. B1 .. B2
                 .. B0 -- B1 -- B2 -- .."""),
    ('1f1b', """F0 F1 .. B0 F2 B1 .. B2
                .. B0 -- B1 -- B2 -- .."""),
    ('forward', """F0 F1 F2 ..
                   .. F0 F1 F2"""),
])
def test_a_schedule_of_each_kind_has_a_list_for_each_cell(kind, expected):
    assert grid(schedule_for(two_cells(), kind, 3)) == draw(expected)


@pytest.mark.parametrize('kind', ['gpipe', '1f1b'])
def test_the_schedule_of_frozen_first_cells_has_no_backwards_there(kind):
    schedule = schedule_for(two_cells('model/in/w'), kind, 3)
    assert grid(schedule) == draw("""F0 F1 F2 .. .. .. ..
                                     .. B0 -- B1 -- B2 --""")


@pytest.mark.parametrize('kind', ['gpipe', '1f1b'])
def test_the_last_cell_computes_the_loss_in_its_backward_though_nothing_trains(kind):
    everything_frozen = two_cells('model/in/w', 'model/mid/w')
    assert schedule_for(everything_frozen, kind, 3).backward_cells == {1}


def test_a_kind_of_schedule_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="schedule '1F1B' is unknown; did you mean '1f1b'"):
        schedule_for(two_cells(), '1F1B', 3)


# With 'cell', a layer takes 1 in the last cell and 4 in any other.
REPEATED = LayerTimes(forward=(1,) * 4, backward=(0,) * 4, weight=(0,) * 4, repeated=(3,) * 4)


@pytest.mark.parametrize(('pipeline', 'expected'), [
    ({'recompute': 'cell'}, (1, 3)),   # The cells take 4 and 3.
    ({'recompute': 'cell', 'partition': 'variance'}, (2, 2)),
    ({'recompute': 'none'}, (2, 2)),
    ({'recompute': ('cell', 'cell')}, (1, 3)),
    ({'recompute': ('none', 'cell')}, (2, 2)),
    ({'recompute': ('layer', 'none', 'none'), 'num_cells': 3}, (1, 1, 2)),   # 7, 1 and 2.
    ({'layers_per_cell': (3, 1)}, (3, 1)),
])
def test_the_last_cell_gets_more_layers_if_it_alone_repeats_nothing(pipeline, expected):
    params = PipelineParams(**{'num_cells': 2, **pipeline})
    assert choose_partition(elements_with_skip(), REPEATED, params).layers_per_cell == expected


def test_a_partition_does_not_cut_a_unit():
    """Two cells of two layers each would be even, but would cut between b and c."""
    unit = Sequential.Params(name='unit', is_unit=True, layers=(dense('b', 8, 8), dense('c', 8, 8)))
    elements = wire(made(dense('a', 8, 8, reads={'x': 'image'}), unit), MICRO_BATCH_SPEC)
    even = LayerTimes(forward=(1,) * 4, backward=(0,) * 4, weight=(0,) * 4, repeated=(0,) * 4)
    partition = choose_partition(elements, even, PipelineParams(num_cells=2, recompute='none'))
    assert partition.layers_per_cell == (1, 3)
    sentence = 'num_cells=4 is more than the 3 parts that the network can be cut into, since layers'
    with pytest.raises(ValueError, match=sentence):   # It said: than the 3 layers. There are 4.
        choose_partition(elements, even, PipelineParams(num_cells=4, recompute='none'))


def test_a_partition_by_hand_does_not_cut_a_unit_either():
    """It did, without a word."""
    unit = Sequential.Params(name='unit', is_unit=True, layers=(dense('b', 8, 8), dense('c', 8, 8)))
    elements = wire(made(dense('a', 8, 8, reads={'x': 'image'}), unit), MICRO_BATCH_SPEC)
    even = LayerTimes(forward=(1,) * 4, backward=(0,) * 4, weight=(0,) * 4, repeated=(0,) * 4)
    with pytest.raises(ValueError, match=r'layers_per_cell=\[2, 2\] cuts after 2 layers, within a '
                                         r'Sequential with is_unit, .*; cut after one of 1, 3 lay'):
        choose_partition(elements, even, PipelineParams(num_cells=2, layers_per_cell=(2, 2)))


@pytest.mark.parametrize(('pipeline', 'sentence'), [
    ({'num_cells': 2, 'layers_per_cell': (3, 4)},
     'layers_per_cell=[3, 4] adds up to 7, but the network has 4 layers; every cell needs at least '
     'one, and together they must hold all.'),
    ({'num_cells': 5},
     'num_cells=5 is more than the 4 layers, and a cell cannot be empty; use at most 4 cells'),
])
def test_a_partition_that_cannot_exist_is_refused(pipeline, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        choose_partition(elements_with_skip(), REPEATED, PipelineParams(**pipeline))
