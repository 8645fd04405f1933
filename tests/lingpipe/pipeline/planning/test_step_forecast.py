"""Step forecasts: one value that plans, reports and tools share, with parts that add up."""
import pytest

from lingpipe.pipeline.planning.breakdown import break_down, parts_of_slots
from lingpipe.pipeline.planning.hardware import Hardware
from lingpipe.pipeline.planning.step_forecast import forecast_step
from tests.support.planned_chains import CHAIN, plan_of

SECONDS = {'layer_seconds': (3.0,) * 4, 'num_micro_batches': 4, 'recompute': 'none'}
SLOW = Hardware('slow', link_bytes_per_s=100.0, memory_bytes_per_s=1e3, slot_s=0.25, weight_s=0.5)


def forecast(hardware=None, layers_per_cell=(3, 1), **pipeline):
    plan = plan_of(*CHAIN, num_cells=2, layers_per_cell=layers_per_cell,
                   **{**SECONDS, **pipeline})
    return forecast_step(plan, hardware)


def test_parts_add_up_to_the_step():
    step = forecast(SLOW)
    parts = step.parts
    assert sum(parts.values()) == pytest.approx(step.step_s)
    assert parts['slots'] == step.plan.simulate().step_s
    assert parts['links'] > 0
    assert parts['overhead'] == 8 * 0.25   # four F and four B on the first device
    weight_bytes = 4 * (8 * 16 + 16 * 16 + 16 * 8)   # on the first device
    assert parts['update'] == 3 * 0.5 + (5 + 2 * 3) * weight_bytes / 1e3
    assert parts['replicas'] == parts['input'] == 0


def test_the_params_say_what_devices_can_do():
    sent = {'link_bytes_per_s': 100.0, 'memory_bytes_per_s': 1e3}
    assert forecast(**sent).parts['links'] == pytest.approx(forecast(SLOW).parts['links'])
    assert forecast(**sent).update_s == pytest.approx(forecast(SLOW).update_s, rel=0.4)
    assert forecast().links_s == 0


def test_from_flops_there_is_nothing_but_slots():
    step = forecast(layer_seconds=())
    assert step.step_s == step.parts['slots'] == step.plan.simulate().step_s


def test_to_split_a_backward_costs_what_it_hands_over():
    free = forecast(schedule='zb_h1', layers_per_cell=(1, 3))
    slow = forecast(schedule='zb_h1', layers_per_cell=(1, 3), memory_bytes_per_s=100.0)
    handed = slow.plan.forecast.footprints[1].handed
    assert slow.plan.forecast.split_costs == [0.0, 2 * handed / 100.0]   # B 0 gives nothing
    assert slow.parts['slots'] > free.parts['slots']
    assert forecast(memory_bytes_per_s=100.0).parts['slots'] == forecast().parts['slots']   # 1f1b


def test_a_forecast_is_broken_down_as_a_measured_step_is():
    step = forecast(SLOW)
    times, plan = step.times(), step.plan
    assert times.step_s == pytest.approx(step.step_s)
    parts = parts_of_slots(plan.schedule, times.timeline.spans, plan.forecast)
    breakdown = break_down(times, plan.schedule, plan.edges, parts)
    assert breakdown.step_s == pytest.approx(step.step_s)
    assert max(device['update'] for device in breakdown.devices) == pytest.approx(step.update_s)
    assert all(device['overhead'] == pytest.approx(2.0) for device in breakdown.devices)
    assert breakdown.mean['transfer'] > 0
