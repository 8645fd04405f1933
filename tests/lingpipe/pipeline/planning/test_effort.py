"""Effort: larger choices and those under a limit take more of it."""
from lingpipe.pipeline.planning.effort import bound_effort, likely_s, moved_effort, plan_effort
from lingpipe.pipeline.planning.search_space import Choice


def choice(num_micro_batches=8, schedule='1f1b', recompute='none'):
    return Choice(4, 1, num_micro_batches, schedule, recompute)


PLAIN = choice()


def test_twice_the_slots_take_twice_the_effort():
    twice = choice(num_micro_batches=16)
    assert bound_effort(twice) == 2 * bound_effort(PLAIN)
    assert plan_effort(twice, False, 10) == 2 * plan_effort(PLAIN, False, 10)


def test_a_limit_fit_auto_and_devices_with_two_cells_take_more():
    def effort(is_limited=True, **changed):
        return plan_effort(choice(**changed), is_limited, num_units=10)

    assert effort(is_limited=False) < effort() < effort(recompute='fit')
    assert effort() < effort(schedule='zb_v') < effort(schedule='auto')


def test_other_cuts_of_more_layers_take_more():
    assert plan_effort(PLAIN, False, 10) < moved_effort(PLAIN, False, 10, 20)
    assert moved_effort(PLAIN, False, 10, 20) < moved_effort(PLAIN, False, 10, 40)


def test_a_step_is_likely_to_take_as_long_as_the_schedule_waits():
    assert likely_s(PLAIN, 8.0, num_devices=5) == 12.0
    assert 8.0 < likely_s(choice(schedule='zb_v'), 8.0, num_devices=5) < 9.0
    assert likely_s(PLAIN, 8.0, num_devices=1) == 8.0
