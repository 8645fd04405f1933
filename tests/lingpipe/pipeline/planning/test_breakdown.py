"""Breakdown: the parts of a step, from hand-made times, add up to the step on every device."""

from typing import Any

import pytest

from lingpipe.pipeline.planning.breakdown import (
    PARTS,
    Breakdown,
    StepTimes,
    UpdateSpan,
    break_down,
    mean_of,
    parts_of_slots,
)
from lingpipe.pipeline.planning.cell_times import cell_times
from lingpipe.pipeline.planning.drawing import Timeline
from lingpipe.pipeline.planning.schedule import Schedule, Slot
from lingpipe.pipeline.planning.schedules import make_schedule
from lingpipe.pipeline.planning.simulator import simulate

SCHEDULE = make_schedule('1f1b', 2, 2)
F0, F1, B0, B1 = (Slot(kind, 0, m) for kind in 'FB' for m in range(2))
LAST_0, LAST_1 = Slot('B', 1, 0), Slot('B', 1, 1)

# Device 0 waits for the gradients, which take 1 s and 0.5 s to arrive, and starts the second B half
# a second after that. Device 1 waits for F0, and starts the second B half a second late too.
SPANS = {F0: (0.0, 2.0), F1: (2.0, 4.0), B0: (8.0, 10.0), B1: (13.0, 15.0),
         LAST_0: (3.0, 7.0), LAST_1: (7.5, 12.0)}
ARRIVALS = {F0: 0.0, F1: 0.0, B0: 8.0, B1: 12.5, LAST_0: 3.0, LAST_1: 5.0}
UPDATES = {0: [UpdateSpan('norms', (15.0, 16.0), 15.0, 15.0),
               UpdateSpan('update', (17.0, 18.0), 16.5, 16.75)],
           1: [UpdateSpan('norms', (15.5, 16.5), 15.0, 15.5),
               UpdateSpan('update', (17.0, 19.0), 16.5, 16.75)]}
SLOT_PARTS = {F0: {'forward': 2.0}, F1: {'forward': 2.0},
              B0: {'recomputation': 0.5, 'backward': 1.5},
              B1: {'recomputation': 0.5, 'backward': 1.5},
              LAST_0: {'forward': 1.0, 'backward': 1.0}, LAST_1: {'forward': 1.0, 'backward': 1.0}}


def without_zeros(seconds: Any) -> dict[str, float]:
    """Returns the parts that have any seconds."""
    return {part: amount for part, amount in seconds.items() if amount}


def test_parts_of_a_step_made_by_hand():
    timeline = Timeline(SPANS, SCHEDULE.device_of)
    step = StepTimes(timeline, ARRIVALS, UPDATES, call_s=20.75).with_input(0.25, 0.75)
    assert step == StepTimes(timeline, ARRIVALS, UPDATES, call_s=20.0, input_s=1.0)
    breakdown = break_down(step, SCHEDULE, None, SLOT_PARTS)
    assert [without_zeros(seconds) for seconds in breakdown.devices] == [
        {'forward': 4.0, 'backward': 3.0, 'recomputation': 1.0, 'update': 2.0,
         'transfer': 1.0 + 0.5 + 0.25, 'imbalance': 1.5, 'bubble': 3.0 + 2.0 + 0.5 + 1.0 - 1.5,
         'input': 1.0, 'overhead': 0.5 + 0.25 + 1.0},
        {'forward': 4.25, 'backward': 4.25, 'update': 3.0,
         'transfer': 1.0 + 0.5 + 0.25, 'bubble': 2.0 + 3.0,
         'input': 1.0, 'overhead': 0.5 + 0.25 + 1.0}]
    assert [sum(seconds.values()) for seconds in breakdown.devices] == [21.0, 21.0]
    assert sum(breakdown.mean.values()) == breakdown.step_s == step.step_s == 21.0
    assert breakdown.mean['imbalance'] == 0.75   # 11.5 s of device 1, less the mean of 10.75 s


def test_a_step_shorter_than_its_stamps_is_as_long_as_these():
    """The clocks of workers may differ from that of the program."""
    timeline = Timeline(SPANS, SCHEDULE.device_of)
    step = StepTimes(timeline, ARRIVALS, UPDATES, call_s=18.0)
    assert break_down(step, SCHEDULE, None, SLOT_PARTS).step_s == step.step_s == 19.0


def test_a_gradient_that_was_there_early_is_no_transfer():
    spans = {**SPANS, B1: (14.0, 15.0)}
    step = StepTimes(Timeline(spans, SCHEDULE.device_of), {**ARRIVALS, B1: 3.0})
    seconds = break_down(step, SCHEDULE, None, SLOT_PARTS).devices[0]
    assert (seconds['transfer'], seconds['overhead']) == (1.0, 2.0)   # B0 waits, and B1 is late.


def test_a_prediction_has_transfers_and_no_overhead():
    simulation = simulate(SCHEDULE, [2.0, 2.0], [2.0, 2.0], transfer_s=0.5)
    seconds = break_down(StepTimes(simulation.timeline), SCHEDULE, None, SLOT_PARTS)
    assert simulation.spans == {F0: (0, 2), F1: (2, 4), LAST_0: (2.5, 6.5), B0: (7, 9),
                                LAST_1: (6.5, 10.5), B1: (11, 13)}
    assert [without_zeros(device) for device in seconds.devices] == [
        {'forward': 4.0, 'backward': 3.0, 'recomputation': 1.0, 'transfer': 1.0, 'bubble': 4.0},
        {'forward': 4.0, 'backward': 4.0, 'transfer': 0.5, 'bubble': 4.5}]


def test_updates_of_two_cells_on_a_device_do_not_count_twice():
    """The sums of cell 1 begin while cell 0 still runs; later both cells update at once."""
    slots = (Slot('F', 0, 0), Slot('B', 1, 0), Slot('B', 0, 0))
    schedule = Schedule('one device', 2, 1, (slots,), frozenset({0, 1}))
    spans = {slots[0]: (0.0, 1.0), slots[1]: (1.0, 3.0), slots[2]: (4.0, 5.0)}
    updates = {0: [UpdateSpan('sums', (3.0, 4.5), 3.0, 3.0),
                   UpdateSpan('norms', (5.0, 8.0), 5.0, 5.0),
                   UpdateSpan('norms', (6.0, 9.0), 5.0, 5.0)]}
    step = StepTimes(Timeline(spans, schedule.device_of), {}, updates)
    parts = {slot: {'forward': 1.0} for slot in slots}
    breakdown = break_down(step, schedule, None, parts)
    assert without_zeros(breakdown.devices[0]) == {'forward': 4.0, 'update': 1.0 + 4.0}


class Costs:
    """The costs that parts_of_slots reads of a Forecast.

    Cell 0 repeats its forward, and cell 1, layer by layer, a third of it.
    """
    cell_times = cell_times([2.0, 3.0], [4.0, 7.0], [2.0, 2.5], recompute=True)
    layer_repeat_costs = [0.0, 1.0]


def test_recomputation_is_the_forward_of_the_same_cell_and_micro_batch():
    spans = {F0: (0.0, 2.0), F1: (2.0, 5.0), B0: (10.0, 15.0), B1: (15.0, 17.0),
             LAST_0: (5.0, 9.0), LAST_1: (9.0, 10.0)}
    costs: Any = Costs()
    of_last = {'forward': 3.0, 'recomputation': 1.0, 'backward': 6.0}
    assert parts_of_slots(SCHEDULE, spans, costs) == {
        F0: {'forward': 2.0}, F1: {'forward': 3.0},
        B0: {'recomputation': 2.0, 'backward': 3.0},
        B1: {'recomputation': 2.0, 'backward': 0.0},   # It took less than its forward.
        LAST_0: of_last, LAST_1: of_last}


def test_parts_of_split_backwards_and_of_early_recomputation():
    """What R has run is no part of its B, and what W runs is no part of either B."""
    r0, w0, w_last = Slot('R', 0, 0), Slot('W', 0, 0), Slot('W', 1, 0)
    devices = ((F0, r0, B0, w0), (LAST_0, w_last))
    schedule = Schedule('split', 2, 1, devices, frozenset({0, 1}))
    spans = {F0: (0.0, 2.0), LAST_0: (2.0, 5.0), w_last: (5.0, 6.0), r0: (2.0, 4.0),
             B0: (5.0, 8.0), w0: (8.0, 9.5)}
    costs: Any = Costs()
    assert parts_of_slots(schedule, spans, costs) == {
        F0: {'forward': 2.0}, r0: {'recomputation': 2.0},
        B0: {'recomputation': 0.0, 'backward': 3.0}, w0: {'weight_gradients': 1.5},
        LAST_0: {'forward': 3.0, 'recomputation': 1.0, 'backward': 7.0 - 2.5 - 1.0},
        w_last: {'weight_gradients': 1.0}}


def test_mean_of_steps():
    steps = [Breakdown((dict.fromkeys(PARTS, seconds),)) for seconds in (1.0, 2.0, 6.0)]
    assert mean_of(steps).devices == (dict.fromkeys(PARTS, 3.0),)
    assert mean_of(steps).step_s == pytest.approx(30.0)
