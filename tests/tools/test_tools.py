"""The tools' promise: each prints a table for people and, with --json, one object for programs."""
from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tools import bench_pipeline, compare_params, show_partition, show_schedule


def printed(capsys, tool, *flags):
    tool.main(list(flags))
    return capsys.readouterr().out


def test_show_schedule_draws_the_grid_and_says_the_bubble(capsys):
    text = printed(capsys, show_schedule, '--schedule=gpipe', '--num_cells=3', '--num_micro_batches=4', '--backward=1')
    assert text.splitlines()[0] == 'F0 F1 F2 F3 .. .. B0 B1 .. B2 .. B3'
    assert 'bubble 33.3%   speed-up 2.00 of 3 (K M / (M + K - 1) = 2.00)' in text
    found = json.loads(printed(capsys, show_schedule, '--num_cells=2', '--num_micro_batches=2', '--json'))
    assert found['devices'][1] == ['B(cell 1, micro-batch 0)', 'B(cell 1, micro-batch 1)']


def test_show_schedule_refuses_what_cannot_be():
    with pytest.raises(SystemExit, match=r"show_schedule: schedule '1f2b' is unknown; did you mean '1f1b'\?"):
        show_schedule.main(['--schedule=1f2b'])


def test_show_partition_lists_every_layer_in_its_cell(capsys):
    found = json.loads(printed(capsys, show_partition, '--model=image.digits.Dense', '--num_cells=3', '--json'))
    assert [cell['num_layers'] for cell in found['cells']] == [sum(row['cell'] == k for row in found['layers']) for k in range(3)]
    assert found['layers'][0]['layer'] == 'model/dense/flatten'


def test_show_partition_cuts_by_measured_seconds(capsys):
    text = printed(capsys, show_partition, '--model=image.digits.Dense', '--measure')
    assert '--set pipeline.layer_seconds=[' in text and ' ms ' in text


def test_show_partition_refuses_more_cells_than_layers():
    with pytest.raises(SystemExit, match=r'show_partition: num_cells=99 is more than the 5 layers'):
        show_partition.main(['--model=image.digits.Dense', '--num_cells=99'])


def test_compare_params_shows_what_differs(capsys, tmp_path):
    assert 'pipeline.num_cells' not in printed(capsys, compare_params, 'image.digits.AmoebaNet', 'image.digits.Dense')
    from lingpipe import registry
    changed = registry.get('image.digits.Dense').override('pipeline.num_cells', '3')
    (tmp_path / 'params.txt').write_text(changed.to_text(), encoding='utf-8')
    found = json.loads(printed(capsys, compare_params, 'image.digits.Dense', str(tmp_path / 'params.txt'), '--json'))
    assert found == {'pipeline.num_cells': ['2', '3']}


@pytest.mark.parametrize('flags', [['--layers=2', '--dim=16', '--heads=2', '--seq=4', '--batch=4', '--num_micro_batches=2'],
                                   ['--device_ms=1,2', '--num_cells=3', '--num_micro_batches=4'],
                                   ['--stack=amoebanet', '--layers=3', '--filters=8', '--image=32', '--batch=4', '--num_micro_batches=2']])
def test_bench_pipeline_prints_one_json_object(flags):
    command = [sys.executable, '-m', 'tools.bench_pipeline', *flags, '--steps=1', '--no_baseline', '--json']
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert {'step_ms', 'examples_s', 'peak_mb', 'us_a_task', 'num_weights'} <= found.keys() and found['step_ms'] > 0


def test_bench_pipeline_compares_with_one_device():
    args = bench_pipeline.parse(['--layers=2', '--dim=16', '--heads=2', '--seq=4', '--batch=4', '--num_micro_batches=2', '--steps=1'])
    found = bench_pipeline.compare(args)
    assert found['bound'] == pytest.approx(4 / 3)
    assert found['speedup'] == pytest.approx(found['one_device_step_ms'] / found['step_ms'])
