"""check_devices: what its rows say, and what becomes of a check that dies or hangs."""
from __future__ import annotations

import json
import os
import sys

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers.sequential import Sequential
from lingpipe.pipeline.planning.breakdown import StepTimes
from lingpipe.pipeline.planning.drawing import Timeline
from lingpipe.pipeline.planning.schedule import Slot
from lingpipe.tools import check_devices, device_checks
from lingpipe.tools.device_checks import Check, bits, machine, overlap, process, running, subjects
from lingpipe.tools.device_checks.rows import Row
from tests.support.forks import Fork

DEVICES = tuple(f'/device:CPU:{i}' for i in range(4))
SMALL = subjects.Subject(
    'three layers',
    Sequential.Params(name='model', layers=(
        *(layers.Dense.Params(name=f'dense_{i}', input_dim=4, units=4) for i in range(3)),
        layers.MeanSquaredErrorLoss.Params(name='loss'))),
    {'x': tf.ones([8, 4]), 'target': tf.zeros([8, 4])})

# Runs checks as process.py does, but one of them kills its process and one hangs.
PROCESS = '''
import json, os, sys, time
for name, _ in json.loads(sys.argv[1])['checks']:
    print(json.dumps({'begins': name}), flush=True)
    if name == 'kills':
        print('no memory left', file=sys.stderr, flush=True)
        os.kill(os.getpid(), 9)
    if name == 'hangs':
        time.sleep(100)
    print(json.dumps({'row': {'check': name, 'verdict': 'ok', 'text': 'fine'}}), flush=True)
    print(json.dumps({'ends': name}), flush=True)
'''


def test_a_check_that_dies_or_hangs_costs_no_other_check():
    checks = [Check('first', 30.), Check('kills', 30.), Check('hangs', 0.1), Check('last', 30.)]
    rows = list(running.run(checks, 4, 1, 1.0, [sys.executable, '-c', PROCESS]))
    assert [(row.check, row.verdict) for row in rows] == [
        ('first', 'ok'), ('kills', 'FAILED'), ('hangs', 'FAILED'), ('last', 'ok')]
    assert rows[1].text == 'its process died (SIGKILL): no memory left'
    assert 'twice its budget' in rows[2].text


# Says of each check what cuBLAS and TensorFlow are told.
ENVIRONMENT = '''
import json, os, sys
for name, _ in json.loads(sys.argv[1])['checks']:
    print(json.dumps({'begins': name}), flush=True)
    text = os.environ.get('CUBLAS_WORKSPACE_CONFIG', '') + os.environ['TF_DETERMINISTIC_OPS']
    print(json.dumps({'row': {'check': name, 'verdict': 'info', 'text': text}}), flush=True)
    print(json.dumps({'ends': name}), flush=True)
'''


@pytest.mark.parametrize(('chosen', 'seen'), [(None, [':4096:81', '0']),
                                              (':16:8', [':16:81', ':16:80'])])
def test_workspaces_of_cublas_that_the_user_has_chosen_stay(monkeypatch, chosen, seen):
    """The checks put their own in place of them."""
    monkeypatch.delenv('CUBLAS_WORKSPACE_CONFIG', raising=False)
    if chosen:
        monkeypatch.setenv('CUBLAS_WORKSPACE_CONFIG', chosen)
    rows = running.run(device_checks.find('bits'), 4, 1, 1.0, [sys.executable, '-c', ENVIRONMENT])
    assert [row.text for row in rows] == seen


def test_plans_are_compared_until_the_time_is_over():
    cpus = machine.Machine('bits', DEVICES, 'CPU', 1, False)
    row = bits.compared(cpus, SMALL, end_s=0.)
    assert row.verdict == 'ok', row.text
    assert row.numbers['same'] == ['K=2 1f1b cell']
    assert row.numbers['plans_left_out'] == len(bits.PLANS) - 1


@pytest.mark.parametrize(('second', 'says'), [
    (1., 'and repeats its own bits'), (2., 'and does not repeat its own bits')])
def test_a_plan_that_differs_is_repeated(monkeypatch, second, says):
    """The one cell is trained twice, and so is the first plan that differs from it."""
    values = iter([0., 0., 1., second])

    def arrays_after(*args: object) -> dict[str, np.ndarray]:
        return {'a': np.full(1, next(values, 0.))}

    monkeypatch.setattr(subjects.Subject, 'arrays_after', arrays_after)
    row = bits.compared(machine.Machine('bits', DEVICES, 'CPU', 1, True), SMALL, end_s=0.)
    assert row.verdict == 'BROKEN'
    assert row.text.endswith(f'in 1 of 1 variables by up to 1.0e+00, {says} '
                             f'({len(bits.PLANS) - 1} plans left out: time is over)')


def test_a_plan_that_fails_when_it_is_repeated_counts_once(monkeypatch):
    """It counted as one that differs and repeats its bits, and as one that failed."""
    values = iter([0., 0., 1.])

    def arrays_after(*args: object) -> dict[str, np.ndarray]:
        return {'a': np.full(1, next(values))}

    monkeypatch.setattr(subjects.Subject, 'arrays_after', arrays_after)
    row = bits.compared(machine.Machine('bits', DEVICES, 'CPU', 1, True), SMALL, end_s=0.)
    assert row.verdict == 'FAILED' and not row.numbers['different']
    assert (len(row.numbers['failed']), row.numbers['plans_left_out']) == (len(bits.PLANS), 0)


def test_bits_differ_even_if_the_numbers_are_equal():
    expected = {'a': np.zeros(2, np.float32), 'b': np.ones(1), 'c': np.ones(1)}
    found = {'a': -np.zeros(2, np.float32), 'b': np.ones(1), 'c': np.full(1, 1.5)}
    assert bits.differing(expected, found) == {'a': 0., 'c': 0.5}


def test_devices_overlap_while_two_of_them_are_in_a_slot():
    spans = {Slot('F', 0, 0): (0., 2.), Slot('F', 0, 1): (2., 4.), Slot('B', 1, 0): (3., 5.)}
    times = StepTimes(Timeline(spans, {slot: slot.cell for slot in spans}))
    assert overlap.shared_time(times) == pytest.approx(1 / 5)


def test_rows_fit_80_columns():
    row = Row('bits_deterministic', 'BROKEN', 'some long words that go on ' * 10)
    assert row.line().startswith('bits+det      BROKEN   some long words')
    assert max(map(len, row.line().splitlines())) <= 80


@pytest.mark.slow
def test_the_allocator_of_a_cpu_is_seen():
    """Every mode of recomputation takes about what is forecast."""
    rows = list(running.run(device_checks.find('memory'), 4, 256, 3.0))
    assert [row.verdict for row in rows] == ['info'] * 5, rows
    assert [row.numbers['mode'] for row in rows[1:]] == ['none', 'cell', 'layer', 'fit']
    assert all(0.9 < row.numbers['ratio'] < 1.1 for row in rows[1:]), rows


@pytest.mark.slow
def test_two_workers_give_the_bits_of_one_cell_with_deterministic_ops():
    """TensorFlow refused an op of the trainer there, and no other test had such ops."""
    check, = device_checks.find('workers')
    assert check.is_deterministic
    asked = {'checks': [(check.name, 135.)], 'is_deterministic': True, 'devices': 4, 'mb': 256}
    # What running.run starts, but in a fork, which need not import TensorFlow.
    ran = Fork(process.main, json.dumps(asked), env={**os.environ, 'TF_DETERMINISTIC_OPS': '1'})
    out, err = ran.communicate(timeout=400)
    row, = (found['row'] for found in map(json.loads, out.splitlines()) if 'row' in found)
    assert row['verdict'] == 'ok', (row['text'], err)
    assert 'equal bits' in row['text']


def test_bits_stand_for_both_kinds_of_ops():
    assert [check.name for check in device_checks.find('bits,overlap')] == [
        'bits_deterministic', 'overlap', 'bits']
    assert device_checks.find('bits_deterministic')[0].is_deterministic


def test_a_broken_promise_is_exit_code_1_and_is_in_the_report(monkeypatch, capsys, tmp_path):
    rows = [Row('bits', 'BROKEN', 'some differ', {'differ': 1}), Row('machine', 'info', 'one')]
    monkeypatch.setattr(check_devices, 'run', lambda *args: iter(rows))
    output = tmp_path / 'report.json'
    with pytest.raises(SystemExit, match='1'):
        check_devices.main(['--json', f'--output={output}'])
    printed = json.loads(capsys.readouterr().out)
    assert printed['rows'] == json.loads(output.read_text())['rows']
    assert printed['rows'][0] == {'check': 'bits', 'verdict': 'BROKEN', 'text': 'some differ',
                                  'numbers': {'differ': 1}}
