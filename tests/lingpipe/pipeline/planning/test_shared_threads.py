"""Shared threads: what a step takes if a device that waits leaves its thread to the others."""

import pytest

from lingpipe.pipeline.planning.cell_times import cell_times
from lingpipe.pipeline.planning.dependencies import chain
from lingpipe.pipeline.planning.list_scheduling import Workload
from lingpipe.pipeline.planning.ordering import (
    AS_GOOD,
    most_held,
    order_automatically,
    order_by_name,
    step_s,
)
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.placement import Placement
from lingpipe.pipeline.planning.schedules import TRAINING, make_schedule
from lingpipe.pipeline.planning.shared_threads import num_shared_threads, shared_step_s
from tests.support.planned_chains import dense, plan_of


def times_of(num_cells, recompute=False, split=0.0):
    return cell_times([1.0] * num_cells, [2.0] * num_cells, recompute=recompute, split=split)


def work_of(num_devices, num_cells, num_micro_batches, **times):
    """Cells in a V, or one a device, whose devices share as many threads."""
    layout = (*range(num_devices), *reversed(range(num_devices)))[:num_cells]
    return Workload(layout, num_micro_batches, frozenset(range(num_cells)), chain(num_cells),
                    times_of(num_cells, **times), num_threads=num_devices)


def num_split(schedule):
    return sum(slot.kind == 'W' for slot in schedule.device_of)


@pytest.mark.parametrize(('num_threads', 'expected'), [(1, 6), (2, 4)])
def test_a_backward_that_runs_alone_uses_the_threads_of_devices_that_wait(num_threads, expected):
    """F0, the F and B of cell 1, and B0 follow each other; half of a B is the gradient of weights.
    """
    one_micro_batch = make_schedule('1f1b', 2, 1)
    assert shared_step_s(one_micro_batch, times_of(2), chain(2), num_threads) == expected


@pytest.mark.parametrize('name', TRAINING)
def test_a_single_thread_takes_all_work_one_after_the_other(name):
    schedule = make_schedule(name, 4, 5)
    assert shared_step_s(schedule, times_of(4), chain(4), 1) == pytest.approx(4 * 5 * 3)


@pytest.mark.parametrize('recompute', [False, True])
@pytest.mark.parametrize('name', TRAINING)
def test_no_backward_is_split_on_two_devices_that_share_their_threads(name, recompute):
    num_cells = 4 if name in ('interleaved', 'zb_v', 'v_half', 'v_min', 'dual_pipe_v') else 2
    work = work_of(2, num_cells, 8, recompute=recompute, split=0.4)
    assert num_split(order_by_name(name, work)) == 0


def test_a_backward_is_split_where_more_devices_wait_than_its_threads_can_fill():
    assert num_split(order_by_name('zb_v', work_of(8, 16, 8))) > 0
    assert num_split(order_by_name('zb_v', work_of(8, 16, 8, split=2.0))) == 0


@pytest.mark.parametrize('name', ['v_half', 'v_min'])
@pytest.mark.parametrize('num_devices', [2, 4])
def test_a_schedule_of_little_memory_holds_no_more_if_its_backwards_are_whole(name, num_devices):
    work = work_of(num_devices, 2 * num_devices, 8, split=0.1)
    ordered = order_by_name(name, work)
    assert ordered.name == name
    assert most_held(ordered) <= most_held(make_schedule(name, work.num_cells, 8))


@pytest.mark.parametrize('name', TRAINING)
def test_no_schedule_by_name_is_faster_than_auto(name):
    work = work_of(2, 4, 4, recompute=True, split=0.1)
    fastest_s = step_s(order_automatically(work), work)
    assert fastest_s <= AS_GOOD * step_s(order_by_name(name, work), work)


@pytest.mark.parametrize(('devices', 'fields', 'expected'), [
    (('/job:worker/task:1/device:CPU:0', '/job:worker/task:1/device:CPU:1'), {}, 2),
    (('/job:worker/task:1/device:CPU:0', '/job:worker/task:1/device:CPU:1'),
     {'jit_compile': True}, None),
    (('/job:worker/task:1/device:CPU:0', '/job:worker/task:1/device:CPU:1'),
     {'shares_threads': False}, None),
    (('/job:worker/task:0/device:CPU:0', '/job:worker/task:1/device:CPU:0'), {}, None),
    (('/job:worker/task:0/device:CPU:0', '/job:worker/task:1/device:CPU:0'),
     {'shares_threads': True}, 2),
    (('GPU:0', 'GPU:1'), {}, None),
    (('CPU:0', 'GPU:0'), {}, None),
    (('CPU:0', 'CPU:0'), {}, None)])
def test_cpu_devices_of_one_process_share_threads(devices, fields, expected):
    params = PipelineParams(num_cells=2, **fields)
    assert num_shared_threads(params, Placement((devices,))) == expected


def test_cells_that_share_devices_leave_more_to_the_last_cell_which_repeats_nothing():
    layers = [dense('first', 8, 8, reads={'x': 'image'}),
              *(dense(f'dense_{i}', 8, 8) for i in range(7))]
    plans = [plan_of(*layers, num_cells=4, num_micro_batches=4, schedule='zb_v', recompute='cell',
                     shares_threads=shares_threads,
                     devices=[f'/job:worker/task:0/device:CPU:{i}' for i in range(2)])
             for shares_threads in (False, None)]
    apart, shared = (plan.partition.layers_per_cell for plan in plans)
    assert sum(shared) == sum(apart)
    assert shared[-1] > apart[-1]
