"""Promises about the report of measured steps."""
from lingpipe.pipeline.planning.breakdown import PARTS, Breakdown
from lingpipe.training.reporting.breakdown_report import BreakdownReport
from lingpipe.training.reporting.timeline import TimelineReport


def parts(seconds):
    """Returns a breakdown of one device, which takes so long for each part."""
    return Breakdown((dict.fromkeys(PARTS, seconds),))


def report(step, measured_bubbles, predicted_from, **predicted):
    """Returns a report of steps of 10 ms."""
    breakdown = BreakdownReport('steps', parts(1e-3), predicted, ())
    return TimelineReport(step, measured_bubbles, 0.2, predicted_from, 0.21, breakdown, 'a.png',
                          'a.json', 'b.png')


def test_the_median_of_several_steps_is_told_with_its_spread():
    several = report(12, (0.25, 0.125, 0.5), 'FLOPs', replayed=parts(0.9e-3))
    assert several.measured_bubble == 0.25
    assert several.text() == (
        'bubble of step 12: measured 25.0% (median of 3 steps, 12.5% to 50.0%), predicted 20.0% '
        'from FLOPs and 21.0% from the measured times of the tasks')
    assert several.step_text() == (
        'steps: 10.0 ms, predicted 9.0 ms from the measured times of the tasks')


def test_one_step_has_no_spread():
    one = report(2, (0.25,), 'layer_seconds', planned=parts(0.8e-3), replayed=parts(0.9e-3))
    assert one.text() == (
        'bubble of step 2: measured 25.0%, predicted 20.0% from layer_seconds and 21.0% from the '
        'measured times of the tasks')
    assert one.step_text() == ('steps: 10.0 ms, predicted 8.0 ms from layer_seconds and 9.0 ms '
                               'from the measured times of the tasks')
