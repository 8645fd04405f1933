"""Device bytes: those of a schedule as it is are its peaks, and the least are no more."""
from __future__ import annotations

import random

import pytest

from lingpipe.pipeline.planning.device_bytes import DeviceBytes
from lingpipe.pipeline.planning.peaks import peaks
from lingpipe.pipeline.planning.schedules import make_schedule
from tests.lingpipe.pipeline.planning.test_limited_bound import LONG_CHAIN
from tests.support.planned_chains import plan_of


@pytest.mark.parametrize('recompute', ['none', 'cell', 'layer'])
@pytest.mark.parametrize('schedule', ['1f1b', 'zb_h1', 'zb_v', 'v_min', 'dual_pipe_v'])
def test_the_bytes_of_devices_are_the_peaks_of_any_partition(schedule, recompute):
    rng = random.Random(f'{schedule} {recompute}')
    cuts = [0, *sorted(rng.sample(range(1, 7), 3)), 7]
    plan = plan_of(*LONG_CHAIN, num_cells=4, num_micro_batches=8, schedule=schedule,
                   recompute=recompute,
                   layers_per_cell=tuple(b - a for a, b in zip(cuts, cuts[1:], strict=False)))
    named = make_schedule(schedule, 4, 8)
    exact, least = (
        DeviceBytes(plan.forecast.memory, [recompute] * 4, range(8), named, rows)
        for rows in ('exact', 'least'))
    expected = peaks(named, plan.forecast.footprints)
    assert exact.peaks(plan.partition.spans) == expected
    assert all(few <= most for few, most in
               zip(least.peaks(plan.partition.spans), expected, strict=True))
