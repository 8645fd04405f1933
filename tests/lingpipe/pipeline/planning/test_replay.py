"""Replay: a step from the mean times of measured tasks, with the update behind it."""

from lingpipe.pipeline.planning.breakdown import StepTimes, UpdateSpan
from lingpipe.pipeline.planning.drawing import Timeline
from lingpipe.pipeline.planning.replay import replay
from lingpipe.pipeline.planning.schedule import Slot
from lingpipe.pipeline.planning.schedules import make_schedule

SCHEDULE = make_schedule('1f1b', 2, 1)
F, B, LAST = Slot('F', 0, 0), Slot('B', 0, 0), Slot('B', 1, 0)


def measured(forward_s: float, update_s: float) -> StepTimes:
    """Returns a step with gaps between its tasks, which a replay does not have."""
    spans = {F: (0.0, forward_s), LAST: (10.0, 13.0), B: (20.0, 22.0)}
    updates = {0: [UpdateSpan('sums', (22.0, 24.0), 22.0, 22.0),
                   UpdateSpan('norms', (30.0, 31.0), 30.0, 30.0),
                   UpdateSpan('update', (40.0, 40.0 + update_s), 40.0, 40.0)],
               1: [UpdateSpan('norms', (13.0, 14.0), 13.0, 13.0),   # of two cells of the device
                   UpdateSpan('norms', (33.0, 34.0), 33.0, 33.0),
                   UpdateSpan('update', (40.0, 44.0), 40.0, 40.0)]}
    return StepTimes(Timeline(spans, SCHEDULE.device_of), updates=updates)


def test_tasks_and_updates_take_the_mean_of_their_measured_times():
    step = replay(SCHEDULE, None, [measured(1.0, 2.0), measured(3.0, 3.0)])
    assert step.timeline.spans == {F: (0, 2), LAST: (2, 5), B: (5, 7)}
    spans = {device: [(update.kind, update.span) for update in updates]
             for device, updates in step.updates.items()}
    assert spans == {0: [('sums', (7, 9)), ('norms', (9, 10)), ('update', (10, 12.5))],
                     1: [('sums', (5, 5)), ('norms', (5, 7)), ('update', (10, 14))]}
    assert step.step_s == 14


def test_a_step_whose_update_was_not_measured_ends_with_its_tasks():
    spans = {F: (0.0, 1.0), LAST: (1.0, 2.0), B: (2.0, 3.0)}
    step = replay(SCHEDULE, None, [StepTimes(Timeline(spans, SCHEDULE.device_of))])
    assert (step.step_s, step.updates) == (3, {})
