"""Promises about the line that sets a predicted step beside a measured one."""
from __future__ import annotations

import pathlib

from lingpipe.training.reporting.breakdown_report import BreakdownReport
from lingpipe.training.reporting.step_time import step_time
from tests.lingpipe.training.reporting.test_timeline import parts
from tests.support.planned_chains import CHAIN, plan_of

SECONDS = {'layer_seconds': (0.003, 0.006, 0.009, 0.003)}


def write(logdir: pathlib.Path, step: int, seconds_a_part: float) -> None:
    """Writes the breakdown of a step of ten parts, whose replay takes 0.9 of its time."""
    (logdir / 'timeline').mkdir(exist_ok=True)
    report = BreakdownReport(f'step {step}', parts(seconds_a_part),
                             {'replayed': parts(0.9 * seconds_a_part)}, ())
    report.save(f'{logdir}/timeline/step-{step:08d}-breakdown')


def test_a_plan_from_flops_predicts_no_seconds(tmp_path):
    plan = plan_of(*CHAIN, num_micro_batches=4)
    assert step_time(plan, '') == step_time(plan, str(tmp_path)) == ''


def test_seconds_are_predicted_from_seconds():
    plan = plan_of(*CHAIN, num_micro_batches=4, **SECONDS)
    assert step_time(plan, '') == 'predicted step: 84.0 ms from layer_seconds'


def test_the_newest_timeline_stands_beside_the_prediction(tmp_path):
    write(tmp_path, 9, 0.002)
    write(tmp_path, 10, 0.008)
    (tmp_path / 'timeline/step-00000011-breakdown.json').write_text('{"step_s"')   # cut off
    measured = 'measured step: 80.0 ms (step 10 of this logdir), -10.0% if replayed'
    assert step_time(plan_of(*CHAIN, num_micro_batches=4), str(tmp_path)) == measured
    assert step_time(plan_of(*CHAIN, num_micro_batches=4, **SECONDS), str(tmp_path)) == (
        f'predicted step: 84.0 ms from layer_seconds\n{measured}, +5.0% if predicted')
