"""Family bound: for any number of cells, no more than the bound of each schedule."""
from __future__ import annotations

import math

import numpy as np
import pytest

from lingpipe.pipeline.planning.family_bound import FamilyBound
from lingpipe.pipeline.planning.layer_times import layer_times
from lingpipe.pipeline.planning.layout import layout_of
from lingpipe.pipeline.planning.limited_bound import LimitedBound
from lingpipe.pipeline.planning.schedules import TRAINING
from lingpipe.pipeline.planning.span_bounds import SpanSeconds, need_alone, tables_of
from tests.lingpipe.pipeline.planning.test_limited_bound import LONG_CHAIN
from tests.support.planned_chains import plan_of


def bounds_of(plan, limit):
    """The family bound of a plan's choice, and that of the choice."""
    times, memory = layer_times(plan.elements, plan.params), plan.forecast.memory
    seconds = list(zip(times.forward, times.backward, strict=True))
    layout = layout_of(plan.placement.places[0])
    limited = LimitedBound(plan.elements, seconds, plan.params, layout)
    mode, starts = plan.params.modes[0], limited.starts
    fits = need_alone(mode, tables_of([mode], memory, starts), live=1) <= limit
    family = FamilyBound(SpanSeconds(plan.elements, seconds, plan.params, starts), mode, fits)
    return family.slots_s(len(layout), len(set(layout))), limited.slots_s_within(limit, memory)


@pytest.mark.parametrize('recompute', ['none', 'cell', 'layer', 'fit'])
@pytest.mark.parametrize('schedule', [*TRAINING, 'auto'])
def test_it_is_no_more_than_the_bound_of_a_choice(schedule, recompute):
    plan = plan_of(*LONG_CHAIN, num_cells=4, num_micro_batches=4, schedule=schedule,
                   recompute=recompute)
    peak = max(plan.peak_bytes().values())
    for limit in (peak, 0.7 * peak, math.inf):
        family_s, choice_s = bounds_of(plan, limit)
        assert 0 < family_s <= choice_s * (1 + 1e-9)


def test_it_is_equal_where_nothing_more_is_known_of_the_schedule():
    plan = plan_of(*LONG_CHAIN, num_cells=4, num_micro_batches=4, schedule='auto')
    family_s, choice_s = bounds_of(plan, max(plan.peak_bytes().values()))
    assert family_s == pytest.approx(choice_s)


def test_numbers_of_cells_share_the_work_in_any_order():
    plan = plan_of(*LONG_CHAIN, num_cells=4, num_micro_batches=4)
    times = layer_times(plan.elements, plan.params)
    seconds = list(zip(times.forward, times.backward, strict=True))
    starts = range(len(plan.elements) + 1)

    def family():
        return FamilyBound(SpanSeconds(plan.elements, seconds, plan.params, starts), 'none',
                           np.ones((len(starts), len(starts)), bool))

    sizes = [(4, 2), (2, 2), (4, 4), (6, 3), (1, 1)]
    shared = family()
    assert [shared.slots_s(*size) for size in sizes] == [family().slots_s(*size) for size in sizes]
