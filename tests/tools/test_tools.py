"""Each tool prints a table for people and, with --json, one object for programs."""
from __future__ import annotations

import json
import pathlib
import shlex
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.checkpoint import Checkpointer
from lingpipe.tools import (
    bench_pipeline,
    compare_checkpoints,
    compare_params,
    plot_partition,
    repeat,
    show_partition,
    show_schedule,
)
from lingpipe.training import registry
from tests.support import forks, tiny_experiment
from tests.support.forks import Fork, run_module


def printed(capsys, tool, *flags):
    tool.main(list(flags))
    return capsys.readouterr().out


def test_show_schedule_draws_the_grid_and_says_the_bubble(capsys):
    text = printed(capsys, show_schedule, '--schedule=gpipe', '--num_cells=3',
                   '--num_micro_batches=4', '--backward=1')
    assert text.splitlines()[0] == 'F0 F1 F2 F3 .. .. B0 B1 .. B2 .. B3'
    assert 'bubble 33.3%   speed-up 2.00 of 3 (K M / (M + K - 1) = 2.00)' in text
    found = json.loads(printed(capsys, show_schedule, '--num_cells=2', '--num_micro_batches=2',
                               '--json'))
    assert found['devices'][1] == ['B(cell 1, micro-batch 0)', 'B(cell 1, micro-batch 1)']


def test_show_schedule_refuses_what_cannot_be():
    with pytest.raises(SystemExit,
                       match=r"show_schedule: schedule '1f2b' is unknown; did you mean '1f1b'\?"):
        show_schedule.main(['--schedule=1f2b'])


def test_show_partition_lists_every_layer_in_its_cell(capsys):
    found = json.loads(printed(capsys, show_partition, '--model=image.digits.Dense',
                               '--num_cells=3', '--json'))
    assert [cell['num_layers'] for cell in found['cells']] == [
        sum(row['cell'] == k for row in found['layers']) for k in range(3)]
    assert found['layers'][0]['layer'] == 'model/dense/flatten'


@pytest.mark.usefixtures('few_rounds')
def test_show_partition_cuts_by_measured_seconds(capsys):
    text = printed(capsys, show_partition, '--model=image.digits.Dense', '--measure')
    assert ' ms ' in text
    line, = (line for line in text.splitlines() if line.startswith('--set='))
    flags = shlex.split(line)   # as a shell reads them
    params = registry.get('image.digits.Dense').override_all(
        flag.removeprefix('--set=') for flag in flags)
    assert len(params.pipeline.layer_seconds) == len(params.pipeline.layer_backward_seconds) == 5
    assert params.pipeline.memory_bytes_per_s > 0


def test_show_partition_refuses_more_cells_than_layers():
    with pytest.raises(SystemExit, match=r'show_partition: num_cells=99 is more than the 5 layers'):
        show_partition.main(['--model=image.digits.Dense', '--num_cells=99'])


def test_plot_partition_draws_what_show_partition_prints(capsys, tmp_path):
    flags = ['--model=image.digits.Dense', '--num_cells=3', '--json']
    found = json.loads(printed(capsys, plot_partition, *flags, f'--output={tmp_path}/one.png'))
    assert pathlib.Path(found.pop('output')).read_bytes().startswith(b'\x89PNG')
    assert found == json.loads(printed(capsys, show_partition, *flags))


def test_plot_partition_has_the_sums_of_its_title(capsys, tmp_path):
    found = json.loads(printed(capsys, plot_partition, '--model=image.digits.Dense',
                               f'--output={tmp_path}/one.png', '--json'))
    layers, cells = found['layers'], found['cells']
    # A dense layer is x w + b of 32 examples, and may have a rectifier. Its weights have a gradient
    # and two slots of Adam.
    assert [(row['layer'].split('/')[-1], row['cell']) for row in layers] == [
        ('flatten', 0), ('hidden_0', 0), ('hidden_1', 1), ('logits', 1), ('loss', 1)]
    assert [row['gflops'] * 1e9 for row in layers[:4]] == pytest.approx([
        0, 32 * (2 * 64 * 128 + 2 * 128), 32 * (2 * 128 * 128 + 2 * 128), 32 * (2 * 128 * 10 + 10)])
    assert [row['state_mb'] * 1e6 for row in layers] == pytest.approx(
        [0, 16 * 65 * 128, 16 * 129 * 128, 16 * 129 * 10, 0])
    for name, total in (('gflops', 'gflops_per_micro_batch'), ('state_mb', 'state_mb'),
                        ('residual_mb', 'residual_mb_per_micro_batch')):
        for cell in cells:
            assert cell[total] == pytest.approx(
                sum(row[name] for row in layers if row['cell'] == cell['cell']))

    # Cell 0 has forward, recomputation and twice as much backward; the last has no recomputation.
    costs = [4 * cells[0]['gflops_per_micro_batch'], 3 * cells[1]['gflops_per_micro_batch']]
    assert [cell['step_share'] for cell in cells] == pytest.approx(
        [cost / sum(costs) for cost in costs], rel=1e-2)
    assert found['balance'] == pytest.approx(1 / 2 / max(cell['step_share'] for cell in cells))
    assert plot_partition.heading(found).startswith(
        f'balance {found["balance"]:.1%} (mean cell / slowest cell), predicted bubble ')


@pytest.mark.parametrize('num_layers, num_cells', [(1, 1), (8, 3), (600, 40)])
def test_plot_partition_has_room_for_names_and_sums(tmp_path, num_layers, num_cells):
    layers = [{'cell': i * num_cells // num_layers,
               'layer': f'model/block_{i // 10}/layer_{i % 10}', 'gflops': 1.0 + i, 'state_mb': 0.0}
              for i in range(num_layers)]
    cells = [{'step_share': 1 / num_cells, 'num_layers': 1, 'state_mb': 0.0}
             for _ in range(num_cells)]
    plot_partition.save_png(str(tmp_path / 'one.png'), {'layers': layers, 'cells': cells}, 'title')
    assert (tmp_path / 'one.png').stat().st_size > 10_000
    named = plot_partition.names(layers)
    expected = ([(i, f'block_{i // 10}/layer_{i % 10}') for i in range(num_layers)]
                if num_layers <= 40 else [(10 * i, f'block_{i}') for i in range(60)])
    assert named == expected


def test_compare_params_shows_what_differs(capsys, tmp_path):
    assert 'pipeline.num_cells' not in printed(capsys, compare_params, 'image.digits.AmoebaNet',
                                               'image.digits.Dense')
    from lingpipe.training import registry
    changed = registry.get('image.digits.Dense').override('pipeline.num_cells', '3')
    (tmp_path / 'params.txt').write_text(changed.to_text(), encoding='utf-8')
    files = ['image.digits.Dense', str(tmp_path / 'params.txt')]
    assert printed(capsys, compare_params, *files) == (
        f'--- {files[0]}\n+++ {files[1]}\n-pipeline.num_cells : 2\n+pipeline.num_cells : 3\n')
    differences = json.loads(printed(capsys, compare_params, *files, '--json'))
    assert differences == {'pipeline.num_cells': ['2', '3']}


def test_compare_params_imports_a_module_only_if_a_flag_names_it(capsys, tmp_path, monkeypatch):
    (tmp_path / 'theirs.py').write_text('from lingpipe.learning.learning_rates import Constant\n'
                                        'class Theirs(Constant):\n    pass\n')
    for number in (1, 2):
        (tmp_path / f'{number}.txt').write_text(f'theirs:Theirs\nrate : 0.{number}\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, 'theirs', raising=False)
    files = [f'{tmp_path}/{number}.txt' for number in (1, 2)]
    with pytest.raises(SystemExit,
                       match=r'compare_params: .*/1\.txt cannot be read: line 1: the root: '
                             r'theirs:Theirs is in a module that nothing here has imported'):
        compare_params.main(files)
    assert 'theirs' not in sys.modules
    assert json.loads(printed(capsys, compare_params, *files, '--import=theirs', '--json')) == {
        'rate': ['0.1', '0.2']}

    monkeypatch.delitem(sys.modules, 'theirs')
    with pytest.raises(SystemExit,
                       match="compare_params: there is no module 'thiers'; correct its name"):
        compare_params.main([*files, '--import=thiers'])


@pytest.mark.parametrize('flags', [
    ['--layers=2', '--dim=16', '--heads=2', '--seq=4', '--batch=4', '--num_micro_batches=2'],
    ['--device_ms=1,2', '--num_cells=3', '--num_micro_batches=4', '--steps=10',
     '--checkpoint_every=5'],
    # Workers print, too.
    ['--device_ms=1,2', '--num_cells=1', '--num_micro_batches=2', '--workers=1']])
def test_bench_pipeline_prints_one_json_object(flags):
    process = Fork(run_module, 'lingpipe.tools.bench_pipeline', '--steps=1', *flags,
                   '--no_baseline', '--json')
    out, err = process.communicate()
    assert process.returncode == 0, err
    found = json.loads(out)
    assert ({'step_ms', 'examples_s', 'peak_mb', 'us_a_task', 'num_weights'} <= found.keys()
            and found['step_ms'] > 0)
    assert (found.get('checkpoint_step_ratio', 0) > 0) == ('--checkpoint_every=5' in flags)


def test_tensors_of_a_step_use_the_memory_of_those_before_again():
    # Each step makes dozens of values of 2 MB.
    flags = ('--layers=2 --dim=32 --heads=2 --seq=256 --batch=8 --num_micro_batches=2 --steps=6'
             .split())
    process = Fork(run_module, 'lingpipe.tools.bench_pipeline', *flags, '--no_baseline', '--json')
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert json.loads(out)['new_pages_mb'] < 8


def test_bench_pipeline_compares_with_one_device(monkeypatch):
    monkeypatch.setattr(subprocess, 'run', forks.run)
    args = bench_pipeline.parse(['--layers=2', '--dim=16', '--heads=2', '--seq=4', '--batch=4',
                                 '--num_micro_batches=2', '--steps=1'])
    found = bench_pipeline.compare(args)
    assert found['bound'] == pytest.approx(4 / 3)
    assert found['speedup'] == pytest.approx(found['one_device_step_ms'] / found['step_ms'])


def test_compare_checkpoints_finds_the_bit_that_differs(capsys, tmp_path):
    values = {'weights/a': tf.Variable([1., 2.]), 'weights/b': tf.Variable(0.)}
    Checkpointer(str(tmp_path / 'one')).save(3, values)
    Checkpointer(str(tmp_path / 'same')).save(7, values)
    values['weights/a'].assign([1., np.nextafter(np.float32(2), np.float32(3))])
    values['weights/b'].assign(np.float32(-0.))
    Checkpointer(str(tmp_path / 'other')).save(3, values)
    assert (printed(capsys, compare_checkpoints, f'{tmp_path}/one', f'{tmp_path}/same')
            == '2 of 2 variables are equal to the last bit\n')

    with pytest.raises(SystemExit) as ended:
        compare_checkpoints.main([f'{tmp_path}/one', f'{tmp_path}/other', '--keys=.*a', '--json'])
    found = json.loads(capsys.readouterr().out)
    assert ended.value.code == 1 and found['num_compared'] == 1
    assert found['differing'] == [{'key': 'weights/a', 'is_same': False, 'difference': 2 ** -22}]
    with pytest.raises(SystemExit):
        compare_checkpoints.main([f'{tmp_path}/one', f'{tmp_path}/other', '--keys=.*b'])
    assert 'weights/b: differs by up to 0' in capsys.readouterr().out
    with pytest.raises(SystemExit,
                       match=r"--keys='c' matches no key; they look like weights/a, weights/b"):
        compare_checkpoints.main([f'{tmp_path}/one', f'{tmp_path}/other', '--keys=c'])


def test_repeat_gives_mean_and_spread_of_runs_with_other_seeds(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(subprocess, 'run', forks.run)
    flags = [f'--model={tiny_experiment.__name__}.Tiny', f'--logdir={tmp_path}', '--runs=2',
             '--set', 'train.num_steps=2', '--json']
    found = json.loads(printed(capsys, repeat, *flags))['metrics']['test/loss']
    assert len(set(found['values'])) == 2
    assert found['mean'] == pytest.approx(sum(found['values']) / 2)
    assert found['std'] == pytest.approx(abs(found['values'][0] - found['values'][1]) / 2 ** 0.5)
    assert '\ntrain_input.seed : 1\n' in (tmp_path / 'run_1' / 'params.txt').read_text()
    flags[3:5] = ['--set', 'train.num_steps=1']
    with pytest.raises(SystemExit, match=r'run_0 holds a run of 2 steps, and train.num_steps=1; '):
        repeat.main(flags)
    with pytest.raises(SystemExit):
        repeat.main([*flags[:3], '--set', 'seed=5'])
    assert '--set seed is what --seeds=seed,train_input.seed sets in' in capsys.readouterr().err
    with pytest.raises(SystemExit, match=r'repeat: .*sed.*'):
        repeat.main(['--model=image.digits.Dense', f'--logdir={tmp_path}', '--seeds=sed'])
