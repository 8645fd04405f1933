"""Ordering: no schedule that has a name beats `auto`, and `auto` keeps a limit if any does."""

import dataclasses
import itertools
import random

import pytest

from lingpipe.pipeline.planning.cell_times import cell_times
from lingpipe.pipeline.planning.dependencies import chain
from lingpipe.pipeline.planning.layout import in_turn, layout_of, zigzag
from lingpipe.pipeline.planning.list_scheduling import Workload
from lingpipe.pipeline.planning.memory import Footprint
from lingpipe.pipeline.planning.ordering import (
    Limit,
    most_held,
    order_automatically,
    order_by_name,
    step_s,
)
from lingpipe.pipeline.planning.peaks import peaks
from lingpipe.pipeline.planning.schedules import TRAINING
from lingpipe.pipeline.planning.validation import validate

MOST_BEATEN = 1.02  # how much faster a schedule with a name may be than `auto`


def random_work(rng):
    """Cells of any times and skip connections, on any devices, with any links.

    Of the 1 to 8 micro-batches there are mostly few, since a plan of many takes longer.
    """
    num_cells = rng.randint(1, 6)
    num_devices = rng.randint(1, num_cells)
    layout = layout_of(rng.choice([
        in_turn(num_cells, num_devices), zigzag(num_cells, num_devices),
        [rng.randrange(num_devices) for _ in range(num_cells)]]))
    pairs = list(itertools.combinations(range(num_cells), 2))
    edges = chain(num_cells) | set(rng.sample(pairs, rng.randint(0, len(pairs))))
    backward = [rng.uniform(0.5, 3.0) for _ in range(num_cells)]
    times = cell_times(
        [rng.uniform(0.2, 2.0) for _ in range(num_cells)], backward,
        [rng.choice([0.0, 0.3, 0.5, 0.7]) * seconds for seconds in backward],
        recompute=rng.random() < 0.3, split=rng.choice([0.0, 0.0, 0.1, 0.5]))
    transfer_s = rng.choice([0.0, 0.1, 1.0])
    backward_cells = range(rng.choice([0, 0, 0, rng.randrange(num_cells)]), num_cells)
    num_micro_batches = min(rng.randint(1, 8), rng.randint(1, 8))
    return Workload(layout, num_micro_batches, frozenset(backward_cells), frozenset(edges), times,
                    lambda sender, receiver: transfer_s, slot_s=rng.choice([0.0, 0.0, 0.3]))


def random_limit(rng, work, by_name):
    """A limit that some schedules keep and others do not, and the bytes of the cells.

    by_name: the schedules without a limit.
    """
    cells = range(work.num_cells)
    footprints = [Footprint(fixed=rng.randint(0, 50), held=held, working=rng.randint(0, 10),
                            handed=held) for held in (rng.randint(1, 20) for _ in cells)]
    peaks_by_name = [max(peaks(schedule, footprints)) for schedule in by_name]
    device_bytes = rng.uniform(min(peaks_by_name), max(peaks_by_name))

    def excess_of(schedule):
        return max(0.0, max(peaks(schedule, footprints)) - device_bytes)

    held = [footprint.held for footprint in footprints]
    room = [device_bytes - sum(footprints[k].fixed for k in cells if work.homes[k] == device)
            - max(footprints[k].working for k in cells if work.homes[k] == device)
            for device in range(work.num_devices)]
    return Limit(held, held, room, excess_of)


def check_random_plans(seed, number):
    rng = random.Random(seed)
    for _ in range(number):
        work = random_work(rng)
        by_name = [order_by_name(name, work) for name in TRAINING]
        limit = random_limit(rng, work, by_name) if rng.random() < 0.5 else None
        chosen = order_automatically(work, limit)
        validate(chosen, work.edges)

        if limit is not None:
            by_name = [order_by_name(name, work, limit) for name in TRAINING]
            least_excess = min(map(limit.excess_of, by_name))
            assert limit.excess_of(chosen) <= least_excess
            by_name = [schedule for schedule in by_name if limit.excess_of(schedule) == 0]
        fastest_s = min((step_s(schedule, work) for schedule in by_name), default=float('inf'))
        assert step_s(chosen, work) <= MOST_BEATEN * fastest_s


def test_auto_is_not_beaten_and_keeps_the_limit_in_random_plans():
    check_random_plans(seed=0, number=100)


@pytest.mark.slow
def test_auto_is_not_beaten_and_keeps_the_limit_in_a_thousand_random_plans():
    check_random_plans(seed=1, number=900)   # and the 100 above


def equal_cells(num_cells, num_devices, num_micro_batches, split_s=0.0):
    return Workload(zigzag(num_cells, num_devices), num_micro_batches, frozenset(range(num_cells)),
                    chain(num_cells),
                    cell_times([1.0] * num_cells, [2.0] * num_cells, split=split_s))


def test_auto_takes_the_v_that_leaves_no_bubble():
    work = equal_cells(8, 4, 8)
    chosen = order_automatically(work)
    assert chosen.name == 'auto'
    assert step_s(chosen, work) == step_s(order_by_name('zb_v', work), work) == 2 * 24 + 3


def test_auto_takes_what_holds_least_among_the_fastest():
    """With one device nothing is gained by holding more than one micro-batch."""
    work = equal_cells(3, 1, 5)
    assert most_held(order_automatically(work)) <= 3


def test_backwards_stay_whole_where_splitting_costs_more_than_it_gains():
    cheap, dear = equal_cells(4, 4, 6), equal_cells(4, 4, 6, split_s=2.0)

    def num_split(work):
        return sum(slot.kind == 'W' for slot in order_automatically(work).device_of)

    assert num_split(dear) < num_split(cheap)
    assert step_s(order_automatically(dear), dear) <= step_s(order_by_name('1f1b', dear), dear)


def test_auto_repeats_forwards_early_where_that_saves_time():
    one_micro_batch = dataclasses.replace(
        equal_cells(4, 4, 1), times=cell_times([1.0] * 4, [2.0] * 4, recompute=True))
    chosen = order_automatically(one_micro_batch)
    assert any(slot.kind == 'R' for slot in chosen.device_of)
    assert step_s(chosen, one_micro_batch) == 3 + 3 + 3 * 1


def test_backwards_stay_whole_where_a_call_costs_more_than_a_w_gains():
    free = equal_cells(4, 4, 6)
    dear = dataclasses.replace(free, slot_s=5.0)
    assert any(slot.kind == 'W' for slot in order_automatically(free).device_of)
    assert not any(slot.kind == 'W' for slot in order_automatically(dear).device_of)
    assert not any(slot.kind == 'W' for slot in order_by_name('zb_h1', dear).device_of)


def test_a_smaller_limit_makes_a_slower_step():
    work = equal_cells(8, 4, 8)
    footprints = [Footprint(held=1, handed=1)] * 8
    steps = []
    for device_bytes in (16, 8, 4):
        limit = Limit([1] * 8, [1] * 8, [device_bytes] * 4, lambda schedule, most=device_bytes:
                      max(0.0, max(peaks(schedule, footprints)) - most))
        chosen = order_automatically(work, limit)
        assert max(peaks(chosen, footprints)) <= device_bytes
        steps.append(step_s(chosen, work))
    assert steps == sorted(steps)
    assert steps[0] < steps[-1]
