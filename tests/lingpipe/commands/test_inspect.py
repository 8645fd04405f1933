"""Inspect: its first lines say whether a plan fits, how fast it is, and what to change."""
from __future__ import annotations

import re

from lingpipe.commands.inspect import inspect
from lingpipe.commands.run_options import RunOptions
from tests.support.tiny_experiment import Tiny


def first_lines(device_type='', devices='', **pipeline):
    """What inspect says, by the names of its first four lines."""
    params = Tiny.params()
    params.pipeline.set(**pipeline)
    text = inspect(params, RunOptions('inspect', device_type=device_type, devices=devices))
    return {line[:10].strip(): line[10:] for line in text.splitlines()[:4]}


def test_a_plan_without_a_limit_is_told_what_it_takes():
    said = first_lines(num_cells=2)
    assert re.fullmatch(r'if a device has [\d.]+ kB \(--device_type says what one has\)',
                        said['fits'])


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
