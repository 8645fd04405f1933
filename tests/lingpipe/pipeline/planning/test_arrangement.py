"""Arrangement: the slots of each device, in the order that the Params want."""

from lingpipe.pipeline.planning.drawing import grid
from tests.support.planned_chains import CHAIN, made, plan_of
from tests.support.schedule_grids import draw

NETWORK = made(*CHAIN)


def plan_of_two_cells(**pipeline):
    return plan_of(NETWORK, **{'num_cells': 2, 'num_micro_batches': 4, 'layers_per_cell': (3, 1),
                               **pipeline})


def test_the_schedule_is_that_of_the_params():
    assert grid(plan_of_two_cells(schedule='gpipe', num_micro_batches=2).schedule) == draw(
        """F0 F1 .. B0 .. B1
           .. B0 -- B1 -- ..""")


def test_cells_that_share_a_device_are_in_one_list():
    assert len(plan_of_two_cells(devices=['CPU:0', '/cpu:0']).schedule.devices) == 1


def test_auto_orders_slots_for_slow_links():
    steps = {schedule: plan_of_two_cells(schedule=schedule, layer_seconds=(3.0,) * 4,
                                         link_bytes_per_s=100.0).simulate().step_s
             for schedule in ('gpipe', '1f1b', 'zb_h1', 'auto')}
    assert steps['auto'] == min(steps.values())
    assert steps['auto'] < steps['1f1b']
