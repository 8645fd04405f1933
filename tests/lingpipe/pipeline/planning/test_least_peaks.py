"""Least peaks: no plan holds less, and one that splits no backward holds no more."""
from __future__ import annotations

import random

import pytest

from lingpipe.pipeline.planning.least_peaks import least_peaks
from lingpipe.pipeline.planning.memory import Footprint
from lingpipe.pipeline.planning.peaks import peaks
from lingpipe.pipeline.planning.schedule import Schedule, Slot
from lingpipe.pipeline.planning.schedules import TRAINING, UNSPLIT, make_schedule
from tests.lingpipe.pipeline.planning.test_limited_bound import LONG_CHAIN
from tests.support.planned_chains import plan_of


@pytest.mark.parametrize('recompute', ['none', 'cell', 'layer'])
@pytest.mark.parametrize('schedule', TRAINING)
def test_no_plan_holds_less(schedule, recompute):
    """Whatever the partition, and whichever backwards its times have split."""
    rng = random.Random(f'{schedule} {recompute}')
    for _ in range(3):
        cuts = [0, *sorted(rng.sample(range(1, 7), 3)), 7]
        counts = tuple(stop - start for start, stop in zip(cuts, cuts[1:], strict=False))
        seconds = tuple(rng.uniform(0.1, 1.0) for _ in range(7))
        num_micro_batches = rng.choice([1, 2, 4, 8])
        plan = plan_of(*LONG_CHAIN, num_cells=4, num_micro_batches=num_micro_batches,
                       schedule=schedule, recompute=recompute, layers_per_cell=counts,
                       layer_seconds=seconds)
        footprints = plan.forecast.footprints
        least = least_peaks(make_schedule(schedule, 4, num_micro_batches), footprints)
        most = peaks(plan.schedule, footprints)
        assert all(few <= many for few, many in zip(least, most, strict=True))
        if schedule in UNSPLIT:
            assert least[1:] == most[1:]


def test_a_first_cell_may_leave_its_backwards_for_later():
    """Its working bytes are counted, but with one micro-batch only."""
    first, last = Slot('F', 0, 0), Slot('B', 1, 0)
    schedule = Schedule('by hand', 2, 2, (
        (first, Slot('F', 0, 1), Slot('B', 0, 0), Slot('B', 0, 1)), (last, Slot('B', 1, 1))),
        frozenset({0, 1}))
    footprints = [Footprint(fixed=100, held=10, working=7, gives_gradients=False),
                  Footprint(fixed=200, held=20, working=3)]
    assert least_peaks(schedule, footprints) == [100 + 2 * 10, 200 + 20 + 3]
    assert peaks(schedule, footprints) == [100 + 2 * 10 + 7, 200 + 20 + 3]
