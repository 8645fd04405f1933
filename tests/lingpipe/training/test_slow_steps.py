"""Slow steps: when steps count as slower, and which device is named."""
from __future__ import annotations

from lingpipe.pipeline.planning.breakdown import StepTimes
from lingpipe.pipeline.planning.drawing import Timeline
from lingpipe.pipeline.planning.schedule import Slot
from lingpipe.training.slow_steps import NUM_STEPS, SlowSteps, cause_text
from tests.support.planned_chains import dense, plan_of


def told_at(slow: SlowSteps, seconds: list[float]) -> list[int]:
    """Returns the numbers of the windows, of equal steps each, after which steps are slower."""
    return [number for number, one in enumerate(seconds)
            if any([slow.add(one) for _ in range(NUM_STEPS)])]


def test_steps_become_slower_once_until_they_are_as_fast_as_before():
    slow = SlowSteps()
    assert told_at(slow, [0.11, 0.1, 0.19, 0.3, 0.4, 0.12, 0.21]) == [3, 6]
    assert (slow.before_s, slow.now_s) == (0.1, 0.21)


def test_few_slow_steps_and_short_delays_do_not_count():
    slow = SlowSteps()
    assert not any([slow.add(0.1) for _ in range(NUM_STEPS)])
    assert not any([slow.add(0.1 if i % 3 else 9.) for i in range(NUM_STEPS)])
    assert told_at(SlowSteps(), [0.001, 0.009]) == []


def times_of(first_s: float, second_s: float) -> StepTimes:
    """Returns the times of a step with one micro-batch on two devices."""
    f0, b0, b1 = Slot('F', 0, 0), Slot('B', 0, 0), Slot('B', 1, 0)
    spans = {f0: (0., first_s / 2), b1: (first_s / 2, first_s / 2 + second_s),
             b0: (first_s / 2 + second_s, first_s + second_s)}
    return StepTimes(Timeline(spans, {f0: 0, b0: 0, b1: 1}))


def text_of(measured: list[StepTimes]) -> str:
    plan = plan_of(dense('a', 8, 8, reads={'x': 'image'}), dense('b', 8, 8), num_cells=2,
                   num_micro_batches=1, devices=('CPU:0', 'CPU:1'))
    return cause_text(0.1, 0.32, measured, plan, 2, lambda device: f'worker {device[-1]}')


def test_a_device_is_named_whose_tasks_take_longer_than_a_whole_step_took():
    measured = [times_of(0.04, 9.), times_of(0.04, 0.15), times_of(0.04, 0.1)]
    assert text_of(measured) == (
        'steps take 3.2 times as long as before (320 ms, not 100), because of worker 1, whose '
        'tasks alone take 300 ms: look at that machine')


def test_what_else_to_look_at_is_told_if_tasks_are_not_the_cause():
    assert text_of([times_of(0.04, 0.03)]) == (
        'steps take 3.2 times as long as before (320 ms, not 100), and the tasks are not the '
        'cause: those of the slowest device take 80 ms; look at the links, at workers that stand '
        'still between tasks, at the machine of the trainer and at the input')
