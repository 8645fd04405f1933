"""Several cells on a device: the order of their slots, literally and against bounds."""

import random
from dataclasses import replace

import pytest

from lingpipe.pipeline.planning.drawing import grid
from lingpipe.pipeline.planning.playing import play
from lingpipe.pipeline.planning.schedules import make_schedule
from lingpipe.pipeline.planning.shared_devices import orders_together
from lingpipe.pipeline.planning.validation import validate
from tests.support.schedule_grids import draw

NAMES = ('gpipe', '1f1b', 'forward')


def together(schedule, devices, duration_of):
    """The fastest order."""
    return orders_together(schedule, devices, duration_of)[0]


@pytest.mark.parametrize(
    'name, devices, expected',
    [
        (
            '1f1b',
            'aabb',
            """F0.0 F1.0 F0.1 F1.1 F0.2 F1.2 F0.3 B1.0 B0.0 F1.3 ..   B1.1 B0.1 ..   ..   B1.2 B0.2 ..   B1.3 B0.3
               ..   ..   F2.0 B3.0 --   F2.1 B2.0 B3.1 --   F2.2 B2.1 B3.2 --   F2.3 B2.2 B3.3 --   B2.3 ..   ..""",  # noqa: E501 (a grid is drawn whole)
        ),
        (
            'gpipe',
            'aa',
            'F0.0 B1.0 --   F0.1 B1.1 --   F0.2 B1.2 --   F0.3 B0.0 B0.1 B0.2 B1.3 --   B0.3',
        ),
    ],
)
def test_cells_of_one_device_take_turns(name, devices, expected):
    cells = make_schedule(name, len(devices), 4)
    merged = together(cells, devices, lambda slot: 2.0 if cells.is_fused(slot) else 1.0)
    validate(merged)
    assert grid(merged) == draw(expected)


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('devices', ['abab', 'abba', 'aaaa', 'aaba'])
@pytest.mark.parametrize('slow_cell', range(4))
def test_any_devices_give_a_schedule_in_which_forwards_and_backwards_of_each_cell_ascend(
        name, devices, slow_cell):
    cells = make_schedule(name, 4, 5, {1, 3})
    merged = together(cells, devices, lambda slot: 3.0 if slot.cell == slow_cell else 1.0)
    validate(merged)
    assert len(merged.devices) == len(set(devices))
    for k, slots in enumerate(cells.devices):
        for kind in 'FB':
            found = [slot
                     for device in merged.devices for slot in device
                     if slot.cell == k and slot.kind == kind]
            assert found == [slot for slot in slots if slot.kind == kind]


def test_cells_on_devices_of_their_own_are_left_alone():
    schedule = make_schedule('1f1b', 3, 4)
    assert together(schedule, 'abc', lambda slot: 1.0) is schedule


def bubble(schedule, duration_of):
    spans = play(schedule, duration_of)
    busy = sum(end - start for start, end in spans.values())
    return 1 - busy / max(end for _, end in spans.values()) / len(schedule.devices)


@pytest.mark.parametrize(
    'name, devices, num_micro_batches, expected',
    [
        ('gpipe', 'aabb', 8, 1 / 9),  # As gpipe of two cells: (K - 1) / (M + K - 1).
        ('1f1b', 'aabb', 8, 1 / 9),
        ('gpipe', 'aabbccdd', 16, 3 / 19),
        # Interleaved, with V cells on each device: (P - 1) / (V M + P - 1). List scheduling alone
        # gives 0.226.
        ('1f1b', 'abcdabcd', 8, 3 / 19),
        ('1f1b', 'abcdabcd', 16, 3 / 35),
        ('gpipe', 'abab', 8, 1 / 17),
    ],
)
def test_cells_of_one_device_idle_no_more_than_the_best_known_order(
        name, devices, num_micro_batches, expected):
    cells = make_schedule(name, len(devices), num_micro_batches)

    def duration_of(slot):
        return {'F': 1.0, 'B': 2.0}[slot.kind] + cells.is_fused(slot)

    assert bubble(together(cells, devices, duration_of), duration_of) == pytest.approx(expected)


@pytest.mark.parametrize('name', ['gpipe', '1f1b'])
def test_shared_devices_are_never_slower_than_if_the_order_were_that_of_cells_apart(name):
    """Compares with the order in which slots start if every cell has a device of its own.

    Placements and costs are random.
    """
    rng = random.Random(name)
    for _ in range(150):
        num_cells = rng.randint(2, 6)
        devices = [rng.choice('abc') for _ in range(num_cells)]
        cells = make_schedule(name, num_cells, rng.randint(1, 8),
                              [k for k in range(num_cells) if rng.random() < 0.8])
        seconds = {(kind, k): rng.choice([1.0, 2.0, 5.0])
                   for kind in 'FB' for k in range(num_cells)}

        def duration_of(slot):
            return seconds[slot.kind, slot.cell]   # noqa: B023

        spans = play(cells, duration_of)
        order = sorted(spans, key=lambda slot: spans[slot][0])   # noqa: B023
        apart = tuple(tuple(slot for slot in order if devices[slot.cell] == home)
                      for home in dict.fromkeys(devices))
        merged = together(cells, devices, duration_of)
        validate(merged)
        assert (step_s(merged, duration_of)
                <= step_s(replace(cells, devices=apart), duration_of) + 1e-9)


def step_s(schedule, duration_of):
    return max(end for _, end in play(schedule, duration_of).values())
