"""Simulated steps against closed forms and hand-counted schedules."""

import re
import warnings
from itertools import product

import pytest

from lingpipe.pipeline.planning.schedule import Schedule, Slot
from lingpipe.pipeline.planning.schedules import make_schedule
from lingpipe.pipeline.planning.simulator import bound, simulate

RELATIVE = 1e-9
SIZES = list(product(range(1, 7), range(1, 10)))


def run(name, num_cells, num_micro_batches, forward_s=1.0, backward_s=1.0, **options):
    schedule = make_schedule(name, num_cells, num_micro_batches)
    return simulate(schedule, [forward_s] * num_cells, [backward_s] * num_cells, **options)


@pytest.mark.parametrize('name', ['gpipe', '1f1b'])
@pytest.mark.parametrize('forward_s, backward_s', [(1, 1), (1, 2), (2, 0.5)])
def test_bubble_is_the_papers_for_equal_cells(name, forward_s, backward_s):
    """Fusing F and B of the last cell changes nothing.

    That device still works f + b for each micro-batch, without waiting.
    """
    for num_cells, num_micro_batches in SIZES:
        found = run(name, num_cells, num_micro_batches, forward_s, backward_s)
        num_slots = num_micro_batches + num_cells - 1
        assert found.step_s == pytest.approx(num_slots * (forward_s + backward_s), rel=RELATIVE)
        assert (found.bubble_share
                == pytest.approx((num_cells - 1) / num_slots, rel=RELATIVE, abs=RELATIVE))
        alone = num_micro_batches * (forward_s + backward_s) * num_cells
        assert (alone / found.step_s
                == pytest.approx(bound(num_cells, num_micro_batches), rel=RELATIVE))


def test_forward_has_the_same_bubble():
    for num_cells, num_micro_batches in SIZES:
        found = run('forward', num_cells, num_micro_batches, 3)
        assert found.step_s == pytest.approx(3 * (num_micro_batches + num_cells - 1), rel=RELATIVE)
        assert found.busy_share == pytest.approx(
            num_micro_batches / (num_micro_batches + num_cells - 1), rel=RELATIVE)


def test_recomputation_spares_the_last_cell():
    """The last cell idles f for each micro-batch, so the bubble exceeds the paper's.

    Its fused slot has just run the forward and need not run it again. gpipe is held up either by
    the last cell between the fill (K - 1 forwards) and the drain (K - 1 recomputed backwards), or
    by cell K - 2, which runs M forwards and M recomputed backwards.
    """
    f, b = 1.0, 2.0
    for num_cells, num_micro_batches in SIZES:
        step_s = num_micro_batches * (f + b)
        if num_cells > 1:
            last = (num_cells - 1) * f + (num_micro_batches + num_cells - 1) * (f + b)
            step_s = max(last, (num_micro_batches + num_cells - 2) * (2 * f + b))
        assert (run('gpipe', num_cells, num_micro_batches, f, b, recompute=True).step_s
                == pytest.approx(step_s, rel=RELATIVE))
    assert (run('gpipe', 2, 8, f, b, recompute=True).bubble_share
            == pytest.approx(1 - 8 * (3 + 4) / (2 * 32)))


def test_1f1b_under_recomputation_loses_a_time_that_does_not_grow_with_micro_batches():
    for num_micro_batches in (8, 16, 32):
        steps = [run(name, 4, num_micro_batches, 1, 2, recompute=True).step_s
                 for name in ('gpipe', '1f1b')]
        assert steps[1] - steps[0] == 2


def test_transfers_delay_the_fill_and_the_drain_of_gpipe_once():
    for num_cells, num_micro_batches in SIZES:
        step_s = (num_micro_batches + num_cells - 1) * 3 + 2 * (num_cells - 1) * 0.5
        assert (run('gpipe', num_cells, num_micro_batches, 1, 2, transfer_s=0.5).step_s
                == pytest.approx(step_s, rel=RELATIVE))


def test_1f1b_pays_for_transfers_with_every_micro_batch():
    assert [run('gpipe', 4, m, 1, 2, transfer_s=0.5).step_s for m in (8, 16, 32)] == [36, 60, 108]
    assert [run('1f1b', 4, m, 1, 2, transfer_s=0.5).step_s for m in (8, 16, 32)] == [41, 71, 131]


def test_a_transfer_delays_only_its_reader():
    seen = set()

    def transfer_s(sender, receiver):
        seen.add((sender, receiver))
        return 10.0 if (sender, receiver) == (0, 1) else 0.0

    spans = run('gpipe', 2, 2, transfer_s=transfer_s).spans
    assert spans[Slot('F', 0, 1)] == (1, 2)  # The sender goes on computing.
    assert spans[Slot('B', 1, 0)] == (11, 13)
    assert spans[Slot('B', 1, 1)] == (13, 15)
    assert spans[Slot('B', 0, 0)] == (13, 14)
    assert seen == {(0, 1), (1, 0)}


def test_a_link_carries_one_result_at_a_time_each_way():
    spans = run('gpipe', 2, 3, link_s=10).spans
    assert [spans[Slot('B', 1, m)] for m in range(3)] == [(11, 13), (21, 23), (31, 33)]
    # Gradients do not wait for activations.
    assert [spans[Slot('B', 0, m)] for m in range(3)] == [(23, 24), (33, 34), (43, 44)]
    # The sender does not wait for its link.
    assert [spans[Slot('F', 0, m)] for m in range(3)] == [(0, 1), (1, 2), (2, 3)]


def test_a_link_that_keeps_up_delays_as_a_transfer_does():
    for num_cells, num_micro_batches in SIZES:
        links, transfers = (run('gpipe', num_cells, num_micro_batches, **{name: 0.5}).spans
                            for name in ('link_s', 'transfer_s'))
        assert links == transfers


def test_a_full_link_sets_the_pace_and_a_latency_comes_once_on_top():
    step_s = run('gpipe', 2, 8, 1, 2, link_s=10).step_s
    # The last value, both passes of the last cell, its gradient, and the last backward.
    assert step_s == 1 + 8 * 10 + 3 + 10 + 2
    assert run('gpipe', 2, 8, 1, 2, link_s=10, transfer_s=0.25).step_s == step_s + 2 * 0.25


def test_links_of_skip_connections_are_links_of_their_own():
    edges = {(0, 1), (1, 2), (0, 2)}
    spans = simulate(make_schedule('forward', 3, 2), [1] * 3, [0] * 3, edges=edges,
                     link_s=lambda a, b: 9 if (a, b) == (0, 2) else 1).spans
    assert spans[Slot('F', 1, 1)] == (3, 4)
    assert [spans[Slot('F', 2, m)] for m in range(2)] == [(10, 11), (19, 20)]


def test_a_skip_connection_waits_for_its_own_transfer():
    edges = {(0, 1), (1, 2), (0, 2)}

    def slow(sender, receiver):
        return 9 if (sender, receiver) == (0, 2) else 0

    spans = simulate(make_schedule('forward', 3, 1), [1, 1, 1], [0, 0, 0], edges=edges,
                     transfer_s=slow).spans
    assert spans[Slot('F', 2, 0)] == (10, 11)


def test_unequal_cells_wait_for_the_slowest():
    found = simulate(make_schedule('gpipe', 2, 2), [1, 3], [2, 4])
    assert found.spans == {
        Slot('F', 0, 0): (0, 1),
        Slot('F', 0, 1): (1, 2),
        Slot('B', 1, 0): (1, 8),
        Slot('B', 1, 1): (8, 15),
        Slot('B', 0, 0): (8, 10),
        Slot('B', 0, 1): (15, 17),
    }
    assert found.step_s == 17
    assert found.busy_share == pytest.approx((6 + 14) / (2 * 17))


def test_1f1b_holds_fewer_micro_batches_than_gpipe():
    assert run('gpipe', 4, 8).peak_live == (8, 8, 8, 1)
    assert run('1f1b', 4, 8).peak_live == (4, 3, 2, 1)
    assert run('1f1b', 4, 2).peak_live == (2, 2, 2, 1)
    assert run('forward', 4, 8).peak_live == (1, 1, 1, 1)


def test_a_frozen_cell_holds_a_micro_batch_only_while_it_runs():
    found = simulate(make_schedule('gpipe', 3, 5, {1, 2}), [1, 1, 1], [1, 1, 1])
    assert found.peak_live == (1, 5, 1)


def test_peak_bytes():
    found = run('1f1b', 3, 5, held_bytes=[10, 20, 30], fixed_bytes=[1000, 2000, 3000])
    assert found.peak_live == (3, 2, 1)
    assert found.peak_bytes == (1030, 2040, 3030)
    assert run('1f1b', 3, 5).peak_bytes == (0, 0, 0)


def test_peak_bytes_of_a_device_is_the_peak_of_its_cells_together():
    """Cells 0 and 2 hold two micro-batches each, but never at the same time."""
    slots = [Slot('F', 0, 0), Slot('F', 0, 1), Slot('F', 1, 0), Slot('F', 1, 1), Slot('B', 2, 0)]
    slots += [Slot('B', 1, 0), Slot('B', 0, 0), Slot('B', 2, 1), Slot('B', 1, 1), Slot('B', 0, 1)]
    schedule = Schedule('one device', 3, 2, (tuple(slots),), frozenset({0, 1, 2}))
    found = simulate(schedule, [1] * 3, [1] * 3, transfer_s=100, held_bytes=[1, 10, 100],
                     fixed_bytes=[1000, 1000, 1000])
    assert found.peak_bytes == (3122,)
    assert found.step_s == 12  # Nothing is transferred within a device.
    assert found.bubble_share == pytest.approx(0, abs=RELATIVE)


def test_costs_of_nothing_take_no_time():
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert run('gpipe', 3, 2, 0, 0).bubble_share == 0


def test_the_trace_is_the_timelines():
    found = run('gpipe', 2, 2)
    assert found.to_trace() == found.timeline.to_chrome_trace()


@pytest.mark.parametrize(
    'options, sentence',
    [(dict(forward_s=[1]), 'forward_s has 1 entry for 2 cells; give one a cell'),
     (dict(backward_s=[1, float('nan')]),
      'backward_s[1]=nan is not a finite number of 0 or more; correct the cost of cell 1'),
     (dict(held_bytes=[1, -1]), 'held_bytes[1]=-1 is not a finite number'),
     (dict(fixed_bytes=[1, 1, 1]), 'fixed_bytes has 3 entries for 2 cells'),
     (dict(transfer_s=-1.0),
      'transfer_s from cell 0 to cell 1 is -1.0; give seconds, finite and 0 or more'),
     (dict(link_s=float('inf')),
      'link_s from cell 0 to cell 1 is inf; give seconds, finite and 0 or more'),
     (dict(edges={(1, 0)}), 'edge (1, 0) does not go from a cell to a later one'),],
)
def test_errors(options, sentence):
    arguments = {'forward_s': [1, 1], 'backward_s': [1, 1], **options}
    with pytest.raises(ValueError, match=re.escape(sentence)):
        simulate(make_schedule('gpipe', 2, 2), **arguments)


def test_bound_is_the_papers():
    assert bound(4, 32) == 128 / 35
    assert bound(1, 7) == 1
    assert bound(5, 1) == 1
    with pytest.raises(ValueError, match='num_cells=0 and num_micro_batches=3 make no pipeline'):
        bound(0, 3)
