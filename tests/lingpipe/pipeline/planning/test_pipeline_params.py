"""Pipeline Params: fields that contradict each other are refused, with what to write instead."""

import re

import pytest

from lingpipe.pipeline.planning.pipeline_params import PipelineParams


def test_the_defaults_are_one_cell_on_one_device():
    params = PipelineParams().validate()
    assert (params.num_cells, params.num_micro_batches, params.num_devices) == (1, 1, 1)


def test_every_cell_of_every_replica_has_a_device():
    assert PipelineParams(num_cells=4, num_replicas=3).num_devices == 12


@pytest.mark.parametrize(('pipeline', 'sentence'), [
    ({'num_micro_batches': 12, 'sum_groups': 5},
     'sum_groups=5 does not divide num_micro_batches=12; use 1, 2, 3, 4, 6 or 12.'),
    ({'num_micro_batches': 2, 'sum_groups': 2, 'num_replicas': 2},
     'sum_groups=2 and num_replicas=2; replicas are groups already: set one of the two to 1.'),
    ({'num_cells': 2049, 'num_replicas': 2},
     'num_cells=2049 and num_replicas=2 need 4098 devices; use at most 4096 of both together.'),
    ({'num_cells': 3, 'recompute': ('cell', 'none')},
     'recompute=cell,none has 2 modes, but num_cells=3; give one mode a cell, or one word for all '
     'of them.'),
    ({'num_cells': 3, 'layers_per_cell': (1, 2)},
     'layers_per_cell=[1, 2] names 2 cells, but num_cells=3; make them equal, or leave '
     'layers_per_cell empty.'),
    ({'layer_seconds': (5., 7., 9., 1.), 'layer_backward_seconds': (1., 1.)},
     'layer_backward_seconds has 2 numbers, but layer_seconds has 4; give one a layer to both, or '
     'leave layer_backward_seconds empty.'),
    ({'layer_seconds': (5., 7., 9., 1.), 'layer_backward_seconds': (1., 8., 1., 1.)},
     'layer_backward_seconds[1]=8.0 is more than layer_seconds[1]=7.0, of which it is a part; '
     'measure again.'),
    ({'num_cells': 2, 'devices': ('CPU:0',)},
     'devices names 1 device, but num_cells=2; name one for each cell.'),
    ({'num_cells': 2, 'num_replicas': 2, 'devices': ('CPU:0', 'CPU:1', 'CPU:2')},
     'devices names 3 devices, but num_cells=2 and num_replicas=2; name one for each cell of each '
     'replica.'),
    ({'devices': ('CPU:4096',)},
     'devices names CPU:4096; no process has so many devices: use numbers below 4096.'),
    ({'num_cells': 3, 'devices': ('GPU:0', 'GPU:1', '/gpu:0')},
     'devices puts 2 cells on GPU:0, [0, 2]; name another GPU, or set cells_per_gpu=2 if that is '
     'meant.'),
])
def test_fields_that_contradict_each_other_are_refused(pipeline, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        PipelineParams(**pipeline).validate()


@pytest.mark.parametrize('pipeline', [
    {'num_micro_batches': 12, 'sum_groups': 6},
    {'num_cells': 2048, 'num_replicas': 2},
    {'layer_seconds': (5., 7.), 'layer_backward_seconds': (5., 0.)},
    {'devices': ('CPU:4095',)},
    {'num_cells': 3, 'devices': ('CPU:0',) * 3},   # Cells may share a CPU.
    {'num_cells': 3, 'devices': ('GPU:0', 'GPU:1', '/gpu:0'), 'cells_per_gpu': 2},
])
def test_what_just_keeps_a_rule_is_accepted(pipeline):
    PipelineParams(**pipeline).validate()


def test_recomputation_is_one_word_for_all_cells_or_one_a_cell():
    assert PipelineParams(num_cells=2, recompute='layer').modes == ('layer', 'layer')
    params = PipelineParams(num_cells=2)
    params.override('recompute', 'cell,none')
    assert [params.recompute_of(k) for k in range(2)] == ['cell', 'none']
    text = params.to_text()
    assert PipelineParams.from_text(text).recompute == ('cell', 'none')
    one_word = text.replace('recompute : ["cell", "none"]', 'recompute : "layer"')
    assert PipelineParams.from_text(one_word).recompute == 'layer'


def test_an_unknown_mode_of_recomputation_is_refused():
    params = PipelineParams(num_cells=2)
    for text, where, meant in (('cel', 'recompute=cel', 'cell'),
                               ('cell,non', 'recompute[1]=non', 'none')):
        sentence = (f'{where} is not one of "none", "cell", "layer", "fit"; '
                    f"did you mean '{meant}'?")
        with pytest.raises(ValueError, match=re.escape(sentence)):
            params.override('recompute', text)


def test_links_are_as_fast_as_seconds_can_be_compared_with():
    with pytest.raises(ValueError, match='link_bytes_per_s=1e[+]09, but layer_seconds is empty'):
        PipelineParams(link_bytes_per_s=1e9).check()


GRID = 'F0 F1 B0 B1; B0 B1'


@pytest.mark.parametrize('fields, num_devices, layout', [
    ({}, 4, (0, 1, 2, 3)),
    ({'cells_per_device': 2}, 2, (0, 1, 0, 1)),
    ({'schedule': 'zb_v'}, 2, (0, 1, 1, 0)),
    ({'schedule': 'interleaved', 'num_replicas': 3}, 6, (0, 1, 0, 1)),
    ({'schedule': 'zb_v', 'cells_per_device': 1}, 4, (0, 1, 2, 3)),
    ({'schedule': 'auto', 'cells_per_device': 2}, 2, (0, 1, 1, 0)),
])
def test_a_schedule_that_wants_several_cells_a_device_needs_fewer_devices(
        fields, num_devices, layout):
    params = PipelineParams(num_cells=4, **fields)
    assert (params.num_devices, params.layout) == (num_devices, layout)


def test_devices_are_named_one_a_cell_or_one_a_device():
    for number in (2, 4):
        names = tuple(f'CPU:{i}' for i in range(number))
        PipelineParams(num_cells=4, schedule='zb_v', devices=names).check()
    with pytest.raises(ValueError, match='devices names 3 devices, but num_cells=4, which share 2 '
                                         'devices; name 2 of them'):
        PipelineParams(num_cells=4, schedule='zb_v', devices=('CPU:0', 'CPU:1', 'CPU:2')).check()


def test_a_schedule_may_be_written_down_in_the_params_or_in_a_file(tmp_path):
    path = tmp_path / 'schedule.txt'
    path.write_text(GRID.replace(';', '\n'))
    for given in ({'schedule_text': GRID}, {'schedule_path': str(path)}):
        params = PipelineParams(num_cells=2, num_micro_batches=2, schedule='text', **given)
        params.check()
        assert params.layout == (0, 1)


def test_a_schedule_of_other_bytes_than_text_is_refused(tmp_path):
    path = tmp_path / 'schedule'
    path.write_bytes(b'\xff\xfe')
    with pytest.raises(ValueError, match=r"schedule_path='.*schedule' is no UTF-8 text; name a"):
        PipelineParams(schedule='text', schedule_path=str(path)).validate()


@pytest.mark.parametrize('fields, sentence', [
    ({'schedule': 'text'}, 'give one of the two with schedule=text'),
    ({'schedule_text': GRID}, 'schedule=1f1b, schedule_text has 18 characters'),
    ({'schedule': 'text', 'schedule_text': GRID, 'cells_per_device': 2},
     'cells_per_device=2, but with schedule=text the rows say'),
    ({'schedule': 'text', 'schedule_path': '/none/at/all'}, "schedule_path='/none/at/all' cannot"),
    ({'schedule': 'text', 'schedule_text': GRID, 'num_cells': 3},
     'num_cells=3, but the schedule that is given has 2; make them equal'),
    ({'schedule': 'text', 'schedule_text': GRID, 'num_micro_batches': 1},
     'num_micro_batches=1, but the schedule that is given has 2; make them equal'),
    ({'schedule': 'text', 'schedule_text': 'F0 F1 B1 B0; B0 B1'},
     'runs B(cell 0, micro-batch 1) before micro-batch 0'),
    ({'schedule': 'text', 'schedule_text': 'F0 F1 Q0 B1; B0 B1'}, "row 0 of the schedule has 'Q0'"),
])
def test_a_schedule_that_is_written_down_wrongly_is_refused(fields, sentence):
    params = {'num_cells': 2, 'num_micro_batches': 2, **fields}
    with pytest.raises(ValueError, match=re.escape(sentence)):
        PipelineParams(**params).check()
