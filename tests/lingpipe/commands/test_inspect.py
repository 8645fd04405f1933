"""Inspect: its first lines say whether a plan fits, how fast it is, and what to change."""
from __future__ import annotations

import re

import pytest

from lingpipe.commands.inspect import inspect
from lingpipe.commands.run_options import RunOptions
from tests.lingpipe.pipeline.execution.test_stateful_ops import StatefulRandom
from tests.support.tiny_experiment import Tiny


def first_lines(device_type='', devices='', overrides=(), **pipeline):
    """What inspect says, by the names of its first lines; none is longer than 80 columns."""
    params = Tiny.params()
    params.pipeline.set(**pipeline)
    text = inspect(params, RunOptions('inspect', device_type=device_type, devices=devices,
                                      overrides=overrides))
    said: dict[str, str] = {}
    for line in text.partition('\n\n')[0].splitlines():
        assert len(line) <= 80
        name = line[:10].strip() or list(said)[-1]
        said[name] = f'{said.get(name, "")} {line[10:]}'.strip()
    return said


def test_a_plan_without_a_limit_is_told_what_it_takes():
    said = first_lines(num_cells=2)
    assert re.fullmatch(r'if a device has [\d.]+ kB \(--device_type says what one has\)',
                        said['fits'])
    assert re.fullmatch(r'[\d.]+ kB more while a layer runs, which no limit counts',
                        said['temporary'])


def test_it_tells_of_values_that_wait_to_be_read_if_they_matter():
    """The forecast left them out without a word: a device held 1.7 times what was told."""
    said = first_lines(num_cells=2, num_micro_batches=8, schedule='gpipe')
    assert re.fullmatch(r'[\d.]+ kB more that was sent and is not yet read, which no limit counts',
                        said['waiting'])
    assert 'waiting' not in first_lines(num_cells=1)


def test_a_plan_that_fits_is_told_by_how_much():
    said = first_lines(num_cells=2, device_bytes=1e9)
    assert re.fullmatch(r'yes: [\d.]+ kB of 1 GB on the fullest device, 0%', said['fits'])


def test_a_plan_that_does_not_fit_is_told_by_how_much_and_what_would():
    roomy = first_lines(num_cells=1, num_micro_batches=1, recompute='none')
    kilobytes = float(re.search(r'([\d.]+) kB', roomy['fits'])[1])
    said = first_lines(num_cells=1, num_micro_batches=1, recompute='none',
                       device_bytes=0.95 * 1e3 * kilobytes, devices='cpu:2')
    assert re.fullmatch(r'no: [\d.]+ kB of [\d.]+ kB on the fullest device, [\d.]+ kB too many',
                        said['fits'])
    assert '--set pipeline.' in said['to change']
    none_fits = first_lines(num_cells=1, num_micro_batches=1, recompute='none', device_bytes=10.0)
    assert none_fits['to change'].startswith('nothing: no single change makes it fit')


def test_the_change_that_helps_most_is_named():
    said = first_lines(num_cells=4, num_micro_batches=1, recompute='none', schedule='gpipe')
    assert said['to change'].startswith('--set pipeline.num_micro_batches=2: ')


def test_one_device_that_repeats_nothing_is_as_fast_as_one_device():
    said = first_lines(num_cells=1, num_micro_batches=1, recompute='none')
    assert said['speed-up'] == '1.00 times one device with memory enough, of 1 at most'
    assert said['bubble'] == '0.0%'
    assert said['to change'] == 'nothing: no single change is faster; --mode=plan tries all'


def test_a_named_device_has_a_limit():
    said = first_lines(num_cells=2, device_type='h100')
    assert re.fullmatch(r'yes: [\d.]+ kB of 72 GB on the fullest device, 0%', said['fits'])


def test_it_says_what_the_devices_are_and_where_seconds_come_from():
    named = first_lines(num_cells=2, device_type='h100')
    assert named['devices'] == '2 of type h100, as --device_type says; they need not be here'
    assert named['seconds'].startswith('estimates of every layer from the data sheet of h100')
    assert re.match(r'[\d.]+ ms predicted \(.*overhead', named['step'])

    here = first_lines(num_cells=2)
    assert here['devices'].startswith('2 (CPU:0, CPU:1); logical CPU devices share')
    assert here['seconds'].startswith('unknown, all is compared by FLOPs; say what')
    assert 'step' not in here

    count = len(Tiny.params().instantiate().make_plan().elements)
    timed = first_lines(num_cells=2, layer_seconds=(0.004,) * count)
    assert timed['seconds'].startswith('measured: those of every layer are in')
    assert ' ms predicted (slots ' in timed['step']


def test_it_says_what_a_planner_has_chosen_and_by_what():
    """A plan by timed layers was shown by FLOPs, as one that is badly cut, without a word."""
    count = len(Tiny.params().instantiate().make_plan().elements)
    auto = {'overrides': ('pipeline.num_cells=auto',), 'num_cells': 2,
            'layers_per_cell': (1, count - 1)}
    assert first_lines(**auto)['planner'] == (
        f'chose num_cells=2, layers_per_cell=[1,{count - 1}], by layers that it timed; all other '
        'lines compare by FLOPs')
    assert first_lines(**auto, device_type='h100')['planner'] == (
        f'chose num_cells=2, layers_per_cell=[1,{count - 1}]')
    by_hand = f'pipeline.layers_per_cell=[1,{count - 1}]'
    auto['overrides'] = (*auto['overrides'], by_hand)
    assert first_lines(**auto, device_type='h100')['planner'] == 'chose num_cells=2'
    assert 'planner' not in first_lines(num_cells=2)


def test_a_layer_that_training_refuses_is_refused():
    params = Tiny.params()
    network = params.task.model
    network.layers = (StatefulRandom.Params(name='rand'), *network.layers)
    with pytest.raises(ValueError, match='rand makes the stateful op RandomUniform'):
        inspect(params, RunOptions('inspect'))
