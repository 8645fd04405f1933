"""--mode=plan: its table and JSON, what it leaves as it is, its errors, and --plan=auto."""
from __future__ import annotations

import json
import re
import subprocess

import pytest

from lingpipe import trainer
from lingpipe.commands import chosen_plan, device_setup, experiment_params
from lingpipe.commands.flags import define_flags, options_of
from lingpipe.commands.plan_freedom import Freedom, freedom, values_in
from lingpipe.commands.run_options import RunOptions
from lingpipe.pipeline.planning.search_space import FREE
from lingpipe.training.experiment import Experiment
from tests.support import forks

MODEL = '--model=tests.support.tiny_experiment.Tiny'
ON_H100 = ['--devices=gpu:0-3', '--device_type=h100']


def printed(capsys, *flags):
    """What a command prints that succeeds."""
    assert trainer.main(['trainer', MODEL, '--mode=plan', *flags]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def plans(capsys, *flags):
    return json.loads(printed(capsys, '--json', *flags))['plans']


def error_of(capsys, *flags):
    assert trainer.main(['trainer', MODEL, '--mode=plan', *flags]) == 1
    return capsys.readouterr().err


def test_the_table_has_a_dozen_plans_in_80_columns_and_the_flags_of_the_first(capsys):
    lines = printed(capsys, *ON_H100).splitlines()
    assert max(map(len, lines)) <= 80
    header = next(line for line in lines if 'examples/s' in line)
    rows = [line for line in lines if re.match(r' *\d+ ', line)]
    assert header.split()[:5] == ['K', 'R', 'M', 'schedule', 'recompute']
    assert [row.split()[0] for row in rows] == [str(i) for i in range(1, 13)]
    flags = ' '.join(lines[lines.index('The first, with --json all:') + 1:])
    for name in FREE:
        assert f'--set=pipeline.{name}=' in flags


def test_json_has_the_flags_that_give_each_plan(capsys):
    found = plans(capsys, *ON_H100)
    assert [plan['step_s'] for plan in found] == sorted(plan['step_s'] for plan in found)
    for plan in found[:3]:
        shown = experiment_params.read_params(RunOptions(
            'inspect', 'tests.support.tiny_experiment.Tiny',
            tuple(flag.removeprefix('--set=') for flag in plan['flags'])))
        assert shown.instantiate().make_plan().partition.layers_per_cell == tuple(
            plan['layers_per_cell'])
        assert shown.pipeline.num_micro_batches == plan['num_micro_batches']


def test_cuts_that_a_person_sets_are_not_moved(capsys):
    flags = (*ON_H100, '--set=pipeline.num_cells=2', '--set=pipeline.layers_per_cell=[1,4]')
    found = plans(capsys, *flags)
    assert {tuple(plan['layers_per_cell']) for plan in found} == {(1, 4)}
    assert {plan['moved_gain'] for plan in found} == {0.0}
    assert 'Cuts were moved' not in printed(capsys, *flags)


def test_what_a_person_sets_stays(capsys):
    found = plans(capsys, *ON_H100, '--set=pipeline.num_cells=2', '--set=pipeline.schedule=gpipe')
    assert {(plan['num_cells'], plan['schedule']) for plan in found} == {(2, 'gpipe')}


def test_with_auto_only_that_value_changes(capsys):
    found = plans(capsys, *ON_H100, '--set=pipeline.num_cells=auto')
    assert {plan['num_cells'] for plan in found} == {1, 2, 3, 4}
    assert {(plan['num_micro_batches'], plan['recompute']) for plan in found} == {(2, 'cell')}


@pytest.mark.usefixtures('few_rounds')
def test_layers_are_timed_without_a_device_type(capsys, monkeypatch):
    monkeypatch.setattr(device_setup, 'configure', lambda params: None)
    found = plans(capsys, '--devices=cpu:2', '--set=pipeline.num_micro_batches=2',
                  '--set=pipeline.num_replicas=1')
    assert {plan['num_cells'] for plan in found} <= {1, 2, 3, 4}
    assert all(plan['examples_per_s'] > 0 for plan in found)


@pytest.mark.parametrize(('flags', 'error'), [
    (['--device_type=h10', '--devices=gpu:0'], r'--device_type=h10 is unknown; did you mean h100'),
    (['--device_type=h100'], r'not how many there are; name them, as --devices=gpu:0-7'),
    ([*ON_H100, '--set=pipeline.num_cells=5', '--set=pipeline.num_replicas=2'],
     r'no plan has num_cells=5, num_replicas=2 on 4 devices with a batch of 8 examples; leave one'),
    ([*ON_H100, '--set=pipeline.num_cells=100'],
     r'num_cells=100 is more than the \d+ parts that the network can be cut into; use fewer cells'),
    ([*ON_H100, '--set=pipeline.num_replicas=3'],
     r'pipeline.num_replicas=3 does not divide the batch of 8 examples; use a divisor, or leave'),
    ([*ON_H100, '--set=pipeline.num_micro_batches=3', '--set=pipeline.sum_groups=3'],
     r'pipeline.num_micro_batches=3 does not divide the batch of 8 examples; use a divisor'),
])
def test_errors_are_one_sentence_with_a_remedy(capsys, flags, error):
    assert re.search(error, error_of(capsys, *flags))


def test_the_smallest_limit_of_the_error_fits(capsys):
    flags = ('--devices=gpu:0-1', '--device_type=h100')
    error = error_of(capsys, *flags, '--set=pipeline.device_bytes=100')
    limit = re.search(r'none of \d+ plans fits devices of 100 bytes: the smallest limit that any '
                      r'fits is pipeline\.device_bytes=(\d+), with --set pipeline\.num_cells=\d+ ',
                      error)[1]
    assert plans(capsys, *flags, f'--set=pipeline.device_bytes={limit}')
    assert error_of(capsys, *flags, f'--set=pipeline.device_bytes={int(limit) - 1}')


def test_replicas_of_a_plan_share_no_device(capsys):
    """Two replicas on one GPU were said to be faster than one, as if each had it alone."""
    on_one = plans(capsys, '--devices=4*gpu:0', '--device_type=h100')
    assert {plan['num_replicas'] for plan in on_one} == {1}
    assert max(plan['num_cells'] for plan in on_one) > 1
    assert 2 in {plan['num_replicas'] for plan in plans(
        capsys, '--devices=gpu:0-1', '--device_type=h100')}


def test_modes_of_cells_and_devices_of_several_cells_are_shown(capsys):
    shown = printed(capsys, '--devices=2*gpu:0-1', '--device_type=h100',
                    '--set=pipeline.num_cells=2', '--set=pipeline.recompute=cell,none')
    assert 'for 2 devices: h100' in shown
    assert ' cell,none ' in shown


def test_freedom_is_what_flags_leave():
    settings = ('pipeline.num_cells=auto', 'pipeline.schedule=gpipe', 'seed=1')
    assert freedom(RunOptions('train', overrides=settings)) == Freedom(
        frozenset({'num_cells'}), frozenset({'schedule'}))
    everything_else = Freedom(frozenset(FREE) - {'schedule'}, frozenset({'schedule'}))
    assert freedom(RunOptions('train', overrides=settings, has_auto_plan=True)) == everything_else
    assert freedom(RunOptions('plan', overrides=settings[1:])) == everything_else
    assert not freedom(RunOptions('train', overrides=settings[1:])).free
    assert values_in(settings) == list(settings[1:])


def test_a_later_setting_counts():
    settings = ('pipeline.num_cells=auto', 'pipeline.num_cells=2')
    assert not freedom(RunOptions('train', overrides=settings)).free


def test_a_run_saves_the_plan_that_it_runs_and_keeps_it(capsys, monkeypatch, tmp_path):
    """The planner is asked once: what it would choose for the resumed run does not count."""
    monkeypatch.setattr(device_setup, 'configure', lambda params: None)
    answers = [['--set=pipeline.num_cells=2', '--set=pipeline.num_micro_batches=4',
                '--set=pipeline.layers_per_cell=[3,2]'], AssertionError]
    monkeypatch.setattr(chosen_plan, 'best_flags', lambda options: answers.pop(0))
    for steps in (1, 2):
        assert trainer.main(['trainer', MODEL, f'--logdir={tmp_path}', '--plan=auto',
                             f'--steps={steps}']) == 0, capsys.readouterr().err
        saved = Experiment.Params.from_text((tmp_path / 'params.txt').read_text()).pipeline
        assert (saved.num_cells, saved.num_micro_batches, saved.layers_per_cell) == (2, 4, (3, 2))


def test_a_resumed_run_with_other_cells_leaves_the_cuts_of_the_plan_before(
        capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(device_setup, 'configure', lambda params: None)
    monkeypatch.setattr(chosen_plan, 'best_flags', lambda options: [
        '--set=pipeline.num_cells=2', '--set=pipeline.num_micro_batches=4',
        '--set=pipeline.layers_per_cell=[3,2]'])
    flags = ['trainer', MODEL, f'--logdir={tmp_path}', '--plan=auto']
    assert trainer.main([*flags, '--steps=1']) == 0, capsys.readouterr().err
    assert trainer.main([*flags, '--steps=2', '--set=pipeline.num_cells=3']) == 0, (
        capsys.readouterr().err)
    saved = Experiment.Params.from_text((tmp_path / 'params.txt').read_text()).pipeline
    assert (saved.num_cells, saved.num_micro_batches, saved.layers_per_cell) == (3, 4, ())


@pytest.mark.slow
def test_a_run_asks_another_process_for_its_plan(monkeypatch, tmp_path):
    monkeypatch.setattr(device_setup, 'configure', lambda params: None)
    monkeypatch.setattr(subprocess, 'run', forks.run)
    flags = [MODEL, f'--logdir={tmp_path}', '--steps=1', *ON_H100, '--plan=auto',
             '--set=pipeline.num_replicas=1', '--set=pipeline.num_micro_batches=2']
    options = options_of(parsed(flags), flags)
    chosen = experiment_params.chosen(experiment_params.read_params(options), options)
    assert chosen.is_frozen
    assert chosen.pipeline.num_cells in (1, 2, 3, 4)
    assert sum(chosen.pipeline.layers_per_cell) == 5


def parsed(flags):
    values = define_flags()
    values(['trainer', *flags])
    return values
