"""The search space: every choice, and none that would change what is learned."""
from __future__ import annotations

import pytest

from lingpipe import layers
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.search_space import FREE, SearchSpace, keeps_statistics, words_of
from tests.support.planned_chains import CHAIN, dense, made


def sizes(batch_size=4, num_devices=4, num_units=3, held=(), keeps=False, **pipeline):
    """The (K, R, M) of all choices."""
    space = SearchSpace(PipelineParams(**pipeline), batch_size, num_devices, num_units,
                        frozenset({'schedule', *held}), keeps)
    return {choice[:3] for choice in space.choices()}


def test_sizes_are_those_that_the_devices_layers_and_examples_allow():
    assert sizes() == {(k, r, m) for k in (1, 2, 3) for r in (1, 2, 4) for m in (1, 2, 4)
                       if k * r <= 4 and r * m <= 4}


def test_two_cells_share_a_device_where_the_schedule_wants_it_and_cells_are_more_than_devices():
    assert sizes(batch_size=1, num_units=9, schedule='zb_v') == {
        (k, 1, 1) for k in (1, 5, 6, 7, 8)}


def test_schedules_and_modes_are_all_there_are():
    choices = list(SearchSpace(PipelineParams(), 1, 2, 3).choices())
    assert {choice.schedule for choice in choices} == set(words_of('schedule'))
    assert {choice.recompute for choice in choices} == set(words_of('recompute'))
    assert {'gpipe', '1f1b'} <= set(words_of('schedule'))
    assert {'none', 'cell', 'layer'} <= set(words_of('recompute'))


def test_a_held_field_keeps_its_value():
    for name, value in (('num_cells', 2), ('num_replicas', 2), ('num_micro_batches', 2),
                        ('schedule', 'gpipe'), ('recompute', 'layer')):
        space = SearchSpace(PipelineParams(**{name: value}), 4, 4, 3, frozenset({name}))
        assert {getattr(choice, name) for choice in space.choices()} == {value}


def test_where_all_is_held_there_is_one_choice_if_the_devices_are_enough():
    assert sizes(held=FREE, num_cells=2, num_micro_batches=2) == {(2, 1, 2)}
    assert sizes(held=FREE, num_cells=2, num_micro_batches=2, num_devices=1) == set()
    assert sizes(held=FREE, num_cells=2, num_micro_batches=3) == {(2, 1, 3)} - {(2, 1, 3)}


@pytest.mark.parametrize(('pipeline', 'expected'), [
    ({'num_micro_batches': 4}, {(1, 1, 4), (1, 2, 2), (1, 4, 1)}),
    ({'num_replicas': 2, 'num_micro_batches': 2}, {(1, 1, 4), (1, 2, 2), (1, 4, 1)}),
    ({'num_micro_batches': 4, 'cross_replica_batch_norm': True}, {(1, 1, 4)}),
])
def test_where_layers_keep_statistics_micro_batches_keep_their_examples(pipeline, expected):
    assert sizes(num_units=1, keeps=True, **pipeline) == expected


def test_groups_of_sums_are_the_replicas_that_there_would_be():
    assert sizes(num_units=1, num_micro_batches=2, sum_groups=2) == {(1, 1, 2), (1, 1, 4)}


def test_batch_norm_keeps_statistics_and_products_do_not():
    norm = layers.BatchNorm.Params(name='norm', dim=8)
    assert keeps_statistics(made(dense('in', 8, 8, reads={'x': 'image'}), norm))
    assert not keeps_statistics(made(*CHAIN))
