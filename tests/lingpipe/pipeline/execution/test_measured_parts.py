"""Measured parts: a timed step of any schedule is divided without a rest."""
from __future__ import annotations

import pytest

from lingpipe.pipeline.planning.breakdown import break_down, parts_of_slots
from lingpipe.pipeline.planning.cell import edges_of_tasks
from tests.lingpipe.pipeline.execution.test_program import batches, program_of


@pytest.mark.parametrize(('schedule', 'recompute', 'num_replicas'),
                         [('1f1b', 'cell', 1), ('zb_v', 'layer', 2)])
def test_parts_of_a_measured_step_add_up_on_every_device(schedule, recompute, num_replicas):
    program = program_of(num_cells=4, schedule=schedule, recompute=recompute,
                         num_replicas=num_replicas, num_micro_batches=2)
    _, times = program.timed_step(batches(1)[0], 0)
    plan = program.plan
    assert set(times.timeline.spans) == set(plan.schedule.device_of)
    assert set(times.updates) == set(range(len(plan.schedule.devices)))

    parts = parts_of_slots(plan.schedule, times.timeline.spans, plan.forecast)
    breakdown = break_down(times, plan.schedule, edges_of_tasks(plan.cells), parts)
    for seconds in breakdown.devices:
        assert sum(seconds.values()) == pytest.approx(times.step_s)
        assert min(seconds.values()) >= -1e-9   # Differences are rounded.
    used = {part for part, seconds in breakdown.mean.items() if seconds > 0}
    assert {'forward', 'backward', 'recomputation', 'update'} <= used
    has_split = any(slot.kind == 'W' for slot in plan.schedule.device_of)
    assert ('weight_gradients' in used) == has_split == (schedule == 'zb_v')
