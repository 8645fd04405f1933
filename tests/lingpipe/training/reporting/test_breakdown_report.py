"""Promises about the table and the picture of the parts of a step."""
from __future__ import annotations

import json
import pathlib

import pytest

from lingpipe.pipeline.planning.breakdown import PARTS, Breakdown, StepTimes
from lingpipe.training.reporting.breakdown_report import BreakdownReport, report
from tests.support.planned_chains import CHAIN, plan_of

NONE = dict.fromkeys(PARTS, 0.0)
MEASURED = Breakdown((
    {**NONE, 'forward': 0.010, 'backward': 0.020, 'bubble': 0.006, 'overhead': 0.004},
    {**NONE, 'forward': 0.014, 'backward': 0.022, 'transfer': 0.002, 'overhead': 0.002}))
REPLAYED = Breakdown(({**NONE, 'forward': 0.012, 'backward': 0.021, 'bubble': 0.003},) * 2)


def test_table_has_mean_lowest_and_highest_device_and_predictions():
    text = BreakdownReport('steps 3 to 7', MEASURED, {'replayed': REPLAYED}, ('A note.',)).text()
    assert text == '''\
steps 3 to 7
part              share mean ms lowest highest replayed
forward           30.0%    12.0   10.0    14.0     12.0
backward          52.5%    21.0   20.0    22.0     21.0
recomputation      0.0%     0.0    0.0     0.0      0.0
weight gradients   0.0%     0.0    0.0     0.0      0.0
update             0.0%     0.0    0.0     0.0      0.0
transfer           2.5%     1.0    0.0     2.0      0.0
imbalance          0.0%     0.0    0.0     0.0      0.0
bubble             7.5%     3.0    0.0     6.0      3.0
input              0.0%     0.0    0.0     0.0      0.0
overhead           7.5%     3.0    2.0     4.0      0.0
step             100.0%    40.0   40.0    40.0     36.0
replayed: -10.0% of the measured step
A note.'''


def test_files_hold_the_numbers_and_a_picture(tmp_path: pathlib.Path):
    BreakdownReport('steps', MEASURED, {'replayed': REPLAYED}, ()).save(f'{tmp_path}/one')
    numbers = json.loads((tmp_path / 'one.json').read_text())
    assert numbers['step_s'] == pytest.approx(0.040)
    assert numbers['measured']['forward'] == pytest.approx(0.012)
    assert numbers['devices'][1]['transfer'] == 0.002
    assert numbers['predicted']['replayed']['step_s'] == pytest.approx(0.036)
    assert (tmp_path / 'one.png').read_bytes().startswith(b'\x89PNG')


@pytest.mark.parametrize(('recompute', 'expected'), [
    ('none', ["cell 1's forward is a part of its B, which is divided by FLOPs.",
              'Where B is not split, weight gradients are a part of backward.']),
    ('cell', ["cell 1's forward is a part of its B, which is divided by FLOPs.",
              'Where B is not split, weight gradients are a part of backward.',
              'Recomputation in a B counts as long as the F that it repeats.'])])
def test_what_is_estimated_is_said(recompute, expected):
    plan = plan_of(*CHAIN, num_cells=2, num_micro_batches=4, recompute=recompute)
    predicted = plan.simulate()
    found = report('simulated', plan, [StepTimes(predicted.timeline)], {})
    assert list(found.notes) == expected
    assert found.measured.step_s == pytest.approx(predicted.step_s)
    is_recomputed = found.measured.mean['recomputation'] > 0
    assert is_recomputed == (recompute == 'cell')
