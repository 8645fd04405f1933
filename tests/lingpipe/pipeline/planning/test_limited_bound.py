"""Limited bound: no plan under a limit is faster, and a limit that it excludes fits no plan."""
from __future__ import annotations

import random

import pytest

from lingpipe.pipeline.planning.layer_times import layer_times
from lingpipe.pipeline.planning.layout import layout_of
from lingpipe.pipeline.planning.limited_bound import LimitedBound, live_at_once
from lingpipe.pipeline.planning.peaks import most_live
from lingpipe.pipeline.planning.schedules import TRAINING, make_schedule
from lingpipe.pipeline.planning.zigzag_partition import is_v
from tests.support.planned_chains import CHAIN, dense, plan_of

LONG_CHAIN = (*CHAIN, dense('d', 8, 4), dense('e', 4, 16), dense('f', 16, 8))


def limited_bound(plan):
    times = layer_times(plan.elements, plan.params)
    return LimitedBound(plan.elements, list(zip(times.forward, times.backward, strict=True)),
                        plan.params, layout_of(plan.placement.places[0]))


def bound_of(plan, limit):
    return limited_bound(plan).slots_s_within(limit, plan.forecast.memory)


@pytest.mark.parametrize('recompute', ['none', 'cell', 'layer', 'fit'])
@pytest.mark.parametrize('schedule', [*TRAINING, 'auto'])
def test_no_partition_is_faster_or_needs_less(schedule, recompute):
    """Partitions by hand, with whatever limit they just fit."""
    rng = random.Random(f'{schedule} {recompute}')
    for _ in range(4):
        cuts = [0, *sorted(rng.sample(range(1, 7), 3)), 7]
        counts = tuple(stop - start for start, stop in zip(cuts, cuts[1:], strict=False))
        settings = dict(num_cells=4, num_micro_batches=rng.choice([1, 4, 8]), schedule=schedule,
                        recompute=recompute, layers_per_cell=counts)
        plan = plan_of(*LONG_CHAIN, **settings)
        limit = max(plan.peak_bytes().values())
        most_s = plan.simulate_times().step_s * (1 + 1e-9)
        bound = limited_bound(plan)
        assert bound.slots_s_within(limit, plan.forecast.memory) <= most_s
        if is_v(bound.layout):
            assert bound.slots_s_in_v(limit, plan.forecast.memory) <= most_s


def test_a_limit_below_what_the_weights_need_fits_nothing():
    plan = plan_of(*LONG_CHAIN, num_cells=4, num_micro_batches=4, schedule='zb_v')
    fixed = plan.forecast.memory.of_span(range(len(plan.elements)), 'none').fixed
    assert bound_of(plan, fixed / 2 - 1) == float('inf')
    assert bound_of(plan, fixed) < float('inf')


def test_one_cell_a_device_waits_for_its_first_micro_batch():
    """Equal cells under 1f1b take M + K - 1 turns. Without the K - 1 the bound would be 0.73."""
    layers = (dense('first', 8, 8, reads={'x': 'image'}),
              *(dense(f'layer_{i}', 8, 8) for i in range(3)))
    plan = plan_of(*layers, num_cells=4, num_micro_batches=8)
    bound_s = bound_of(plan, max(plan.peak_bytes().values()))
    assert 0.9 < bound_s / plan.simulate_times().step_s <= 1


@pytest.mark.parametrize('name', TRAINING)
def test_what_is_live_together_is_no_more_than_each_cell_has(name):
    schedule = make_schedule(name, 4, 8)
    together = live_at_once(schedule)
    assert all(few <= most for few, most in zip(together, most_live(schedule), strict=True))
    assert all(together)
