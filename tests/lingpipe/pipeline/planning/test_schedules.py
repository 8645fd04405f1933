"""Schedules against literal grids, and the validator against corrupted ones."""

import random
import re
from dataclasses import replace
from itertools import combinations

import pytest

from lingpipe.pipeline.planning.dependencies import dependencies, play
from lingpipe.pipeline.planning.drawing import grid
from lingpipe.pipeline.planning.schedules import Schedule, Slot, make_schedule
from lingpipe.pipeline.planning.shared_devices import together
from lingpipe.pipeline.planning.validation import validate

NAMES = ('gpipe', '1f1b', 'forward')


def draw(text):
    return '\n'.join(line.strip() for line in text.strip().splitlines())


@pytest.mark.parametrize(
    'name, num_cells, num_micro_batches, expected',
    [
        (
            'gpipe',
            3,
            4,
            """F0 F1 F2 F3 .. .. B0 B1 .. B2 .. B3
               .. F0 F1 F2 F3 B0 B1 .. B2 .. B3 ..
               .. .. B0 -- B1 -- B2 -- B3 -- .. ..""",
        ),
        (
            '1f1b',
            3,
            4,
            """F0 F1 F2 .. .. B0 F3 B1 .. B2 .. B3
               .. F0 F1 .. B0 F2 B1 F3 B2 .. B3 ..
               .. .. B0 -- B1 -- B2 -- B3 -- .. ..""",
        ),
        (
            '1f1b',
            4,
            6,
            """F0 F1 F2 F3 .. .. .. B0 F4 B1 F5 B2 .. B3 .. B4 .. B5
               .. F0 F1 F2 .. .. B0 F3 B1 F4 B2 F5 B3 .. B4 .. B5 ..
               .. .. F0 F1 .. B0 F2 B1 F3 B2 F4 B3 F5 B4 .. B5 .. ..
               .. .. .. B0 -- B1 -- B2 -- B3 -- B4 -- B5 -- .. .. ..""",
        ),
        (
            '1f1b',
            3,
            2,
            """F0 F1 .. .. .. B0 .. B1
               .. F0 F1 .. B0 .. B1 ..
               .. .. B0 -- B1 -- .. ..""",
        ),
        (
            'forward',
            3,
            4,
            """F0 F1 F2 F3 .. ..
               .. F0 F1 F2 F3 ..
               .. .. F0 F1 F2 F3""",
        ),
        ('gpipe', 1, 3, 'B0 -- B1 -- B2 --'),
        ('1f1b', 1, 3, 'B0 -- B1 -- B2 --'),
        ('forward', 1, 3, 'F0 F1 F2'),
    ],
)
def test_grid(name, num_cells, num_micro_batches, expected):
    assert grid(make_schedule(name, num_cells, num_micro_batches)) == draw(expected)


def test_grid_with_given_slots():
    schedule = make_schedule('gpipe', 2, 2)
    assert grid(
        schedule, columns_of=lambda slot: {'F': 1, 'B': 2}[slot.kind] + schedule.is_fused(slot)
    ) == draw(
        """F0 F1 .. .. B0 -- .. B1 --
           .. B0 -- -- B1 -- -- .. .."""
    )


def test_frozen_cells_have_no_backward_and_run_ahead():
    assert grid(make_schedule('1f1b', 3, 4, backward_cells={1})) == draw(
        """F0 F1 F2 F3 .. .. .. .. .. .. ..
           .. F0 F1 .. B0 F2 B1 F3 B2 .. B3
           .. .. B0 -- B1 -- B2 -- B3 -- .."""
    )


def test_the_last_cell_has_a_backward_even_if_nothing_trains():
    assert make_schedule('gpipe', 2, 3, backward_cells=()).backward_cells == {1}


@pytest.mark.parametrize('name', NAMES)
def test_every_size_and_every_frozen_prefix_is_valid(name):
    for num_cells in range(1, 7):
        for num_micro_batches in range(1, 10):
            for first in range(num_cells):
                validate(make_schedule(name, num_cells, num_micro_batches, range(first, num_cells)))


@pytest.mark.parametrize('name', NAMES)
def test_every_set_of_skip_connections_is_valid(name):
    for num_cells in range(1, 5):
        pairs = list(combinations(range(num_cells), 2))
        for size in range(len(pairs) + 1):
            for edges in combinations(pairs, size):
                for trained in range(2**num_cells):
                    cells = [k for k in range(num_cells) if trained >> k & 1]
                    validate(make_schedule(name, num_cells, 5, cells), edges)


@pytest.mark.parametrize('name', ['gpipe', '1f1b'])
def test_backwards_ascend_on_every_device(name):
    """Gradients are thus summed in the same order for every schedule."""
    for num_cells in range(1, 7):
        for slots in make_schedule(name, num_cells, 9).devices:
            assert [slot.micro_batch for slot in slots if slot.kind == 'B'] == list(range(9))


def test_1f1b_holds_at_most_the_cells_that_follow():
    for num_cells in range(1, 7):
        for num_micro_batches in range(1, 10):
            for k, slots in enumerate(
                    make_schedule('1f1b', num_cells, num_micro_batches).devices[:-1]):
                live = [sum(1 if slot.kind == 'F' else -1 for slot in slots[:i])
                        for i in range(len(slots) + 1)]
                assert max(live) == min(num_cells - k, num_micro_batches)


def test_dependencies_follow_skip_connections_both_ways():
    schedule = make_schedule('gpipe', 4, 2, backward_cells={1, 2, 3})
    edges = {(0, 1), (1, 2), (2, 3), (0, 2), (1, 3)}
    assert dependencies(Slot('F', 0, 1), schedule, edges) == ()
    assert dependencies(Slot('F', 2, 1), schedule, edges) == (Slot('F', 0, 1), Slot('F', 1, 1))
    assert dependencies(Slot('B', 3, 1), schedule, edges) == (Slot('F', 1, 1), Slot('F', 2, 1))
    assert dependencies(Slot('B', 1, 1), schedule, edges) == (
        Slot('F', 1, 1), Slot('B', 2, 1), Slot('B', 3, 1))
    assert dependencies(Slot('B', 2, 1), schedule) == (Slot('F', 2, 1), Slot('B', 3, 1))
    with pytest.raises(ValueError, match=re.escape(
        'has no place for B(cell 0, micro-batch 1): cell 0 is not in backward_cells')):
        dependencies(Slot('B', 0, 1), schedule, edges)


def move(schedule, take=None, put=None):
    """Removes the slot `take` from the schedule and inserts `put` = (device, position, slot)."""
    devices = [[slot for slot in slots if slot != take] for slots in schedule.devices]
    if put is not None:
        device, position, slot = put
        devices[device].insert(position, slot)
    return replace(schedule, devices=tuple(map(tuple, devices)))


def refuses(schedule, sentence, edges=None):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        validate(schedule, edges)


@pytest.mark.parametrize('name', NAMES)
def test_every_missing_slot_is_named(name):
    schedule = make_schedule(name, 3, 4)
    for slot in schedule.device_of:
        refuses(move(schedule, take=slot), f'schedule {name!r} lacks {slot}; run every task once')


@pytest.mark.parametrize('name', NAMES)
def test_every_doubled_slot_is_named(name):
    schedule = make_schedule(name, 3, 4)
    for slot, device in schedule.device_of.items():
        refuses(move(schedule, put=(device, 0, slot)),
                f'runs {slot} twice, the second time on device {device}')


def test_a_slot_on_the_wrong_device_is_named():
    slot = Slot('B', 1, 3)
    refuses(move(make_schedule('gpipe', 3, 4), take=slot, put=(2, 4, slot)),
            'runs B(cell 1, micro-batch 3) on device 2, but its cell is on device 1; keep a cell '
            'on one device',)


@pytest.mark.parametrize(
    'slot, reason',
    [
        (Slot('F', 2, 0), 'cell 2 is the last, whose B is its F too'),
        (Slot('B', 0, 0), 'cell 0 is not in backward_cells'),
        (Slot('F', 0, 4), 'there are 3 cells and 4 micro-batches, of kinds F and B'),
        (Slot('X', 0, 0), 'there are 3 cells and 4 micro-batches, of kinds F and B'),
    ],
)
def test_a_slot_that_should_not_exist_is_named(slot, reason):
    schedule = make_schedule('gpipe', 3, 4, backward_cells={1, 2})
    refuses(move(schedule, put=(min(slot.cell, 2), 0, slot)),
            f'has no place for {slot}: {reason}; remove it')


def test_a_backward_before_its_forward_is_a_deadlock():
    slot = Slot('B', 0, 0)
    refuses(move(make_schedule('gpipe', 2, 2), take=slot, put=(0, 0, slot)),
            'device 0 waits at B(cell 0, micro-batch 0) for F(cell 0, micro-batch 0), which can '
            'never start; run F(cell 0, micro-batch 0) on device 0 before what waits for it',)


def test_a_deadlock_between_devices_is_named():
    """Each device waits for the other.

    Device 0 has F of micro-batch 1 after B of micro-batch 0, for which device 1 needs that F first.
    """
    late = Schedule(
        'late',
        3,
        2,
        (
            (Slot('F', 0, 0), Slot('B', 0, 0), Slot('F', 0, 1), Slot('B', 0, 1)),
            (Slot('F', 1, 0), Slot('F', 1, 1), Slot('B', 1, 0), Slot('B', 1, 1)),
            (Slot('B', 2, 0), Slot('B', 2, 1)),
        ),
        frozenset({0, 1, 2}),
    )
    refuses(late,
            "schedule 'late' deadlocks: device 0 waits at B(cell 0, micro-batch 0) for B(cell 1, "
            "micro-batch 0)")


def test_backwards_out_of_order_are_refused():
    schedule = make_schedule('gpipe', 2, 2)
    swapped = replace(schedule, devices=(schedule.devices[0][:2] + schedule.devices[0][:1:-1],
                                         schedule.devices[1]))
    refuses(swapped,
            'runs B(cell 0, micro-batch 1) before micro-batch 0; backwards run in ascending order')


def test_edges_that_do_not_lead_to_a_later_cell_are_refused():
    schedule = make_schedule('gpipe', 3, 2)
    for edge in [(1, 1), (2, 1), (-1, 1), (1, 3)]:
        refuses(schedule,
                f'edge {edge} does not go from a cell to a later one of 3; give (maker, reader)',
                {(0, 1), edge})


def test_several_cells_on_a_device_are_drawn_with_their_numbers():
    devices = (
        (Slot('F', 0, 0), Slot('F', 2, 0)),
        (Slot('F', 1, 0),),
    )
    schedule = Schedule('looped', 3, 1, devices, frozenset())
    validate(schedule)
    assert grid(schedule) == 'F0.0 ..   F2.0\n..   F1.0 ..'


@pytest.mark.parametrize(
    'arguments, sentence',
    [(('gpip', 2, 2),
      "schedule 'gpip' is unknown; did you mean 'gpipe'? Use one of gpipe, 1f1b, forward"),
     (('1F1B', 2, 2), "did you mean '1f1b'?"),
     (('gpipe', 0, 2), 'num_cells=0 makes no pipeline; use 1 or more'),
     (('forward', 2, 0), 'num_micro_batches=0 makes no pipeline; use 1 or more'),
     (('1f1b', 2, 2, {2}), 'backward_cells has cell 2 of 2; use cells 0 to 1'),],
)
def test_errors_of_make_schedule(arguments, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        make_schedule(*arguments)


def test_a_schedule_whose_last_cell_computes_no_loss_is_refused():
    refuses(replace(make_schedule('gpipe', 3, 2), backward_cells=frozenset({0, 1})),
            'lacks the last cell, 2, whose B computes the loss')


# Several cells on a device.


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
