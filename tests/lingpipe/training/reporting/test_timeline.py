"""Promises about the report of measured steps."""
from lingpipe.training.reporting.timeline import TimelineReport


def test_the_median_of_several_steps_is_told_with_its_spread():
    report = TimelineReport(12, (0.25, 0.125, 0.5), 0.2, 'FLOPs', 0.21, 'a.png', 'a.json')
    assert report.measured_bubble == 0.25
    assert report.text() == (
        'bubble of step 12: measured 25.0% (median of 3 steps, 12.5% to 50.0%), predicted 20.0% '
        'from FLOPs and 21.0% from the measured times of the tasks')


def test_one_step_has_no_spread():
    report = TimelineReport(2, (0.25,), 0.2, 'layer_seconds', 0.21, 'a.png', 'a.json')
    assert report.text() == ('bubble of step 2: measured 25.0%, predicted 20.0% from layer_seconds '
                             'and 21.0% from the measured times of the tasks')
