"""Promises about the lines that set a predicted step beside a measured one."""
from __future__ import annotations

import pathlib

from lingpipe.pipeline.planning.step_forecast import forecast_step
from lingpipe.training.reporting.breakdown_report import BreakdownReport
from lingpipe.training.reporting.plan_table import one_line
from lingpipe.training.reporting.step_time import measured_text, predicted_text
from tests.lingpipe.training.reporting.test_timeline import parts
from tests.support.planned_chains import CHAIN, plan_of

SECONDS = {'layer_seconds': (0.003, 0.006, 0.009, 0.003)}


def write(logdir: pathlib.Path, step: int, seconds_a_part: float, plan: str = '') -> None:
    """Writes the breakdown of a step of ten parts, whose replay takes 0.9 of its time."""
    (logdir / 'timeline').mkdir(exist_ok=True)
    report = BreakdownReport(f'step {step}', parts(seconds_a_part),
                             {'replayed': parts(0.9 * seconds_a_part)}, (), plan)
    report.save(f'{logdir}/timeline/step-{step:08d}-breakdown')


def test_a_forecast_names_its_parts():
    plan = plan_of(*CHAIN, num_micro_batches=4, **SECONDS)
    assert predicted_text(forecast_step(plan)) == (
        '84.1 ms predicted (slots 84.0, overhead 0.1)')


def test_the_newest_timeline_stands_beside_the_prediction(tmp_path):
    assert measured_text(0.084, str(tmp_path)) == measured_text(0.084, '') == ''
    write(tmp_path, 9, 0.002)
    write(tmp_path, 10, 0.008)
    (tmp_path / 'timeline/step-00000011-breakdown.json').write_text('{"step_s"')   # cut off
    assert measured_text(None, str(tmp_path)) == (
        '80.0 ms measured (step 10 of this logdir): replayed -10.0%')
    assert measured_text(0.084, str(tmp_path)) == (
        '80.0 ms measured (step 10 of this logdir): predicted +5.0%, replayed -10.0%')


def test_a_forecast_is_not_compared_with_a_step_of_another_plan(tmp_path):
    """It was: a run in four cells had the forecast of two beside it, as one that was far off."""
    two_cells, four_cells = (one_line(plan_of(*CHAIN, num_cells=num_cells, num_micro_batches=4))
                             for num_cells in (2, 4))
    write(tmp_path, 9, 0.008, four_cells)
    assert measured_text(0.084, str(tmp_path), two_cells) == (
        '80.0 ms measured (step 9 of this logdir) with another plan (cells of 1, 1, 1, 1 layers, '
        '1 replica, 4 micro-batches, schedule 1f1b, recompute cell): replayed -10.0%')
    assert measured_text(0.084, str(tmp_path), four_cells) == (
        '80.0 ms measured (step 9 of this logdir): predicted +5.0%, replayed -10.0%')
