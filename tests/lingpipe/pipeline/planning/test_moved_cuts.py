"""Moved cuts: steps become shorter, within limits and units, and Params give them back."""
from __future__ import annotations

import itertools
import random

import pytest

from lingpipe.layers import Sequential
from lingpipe.pipeline.planning.candidates import Candidates
from lingpipe.pipeline.planning.hardware import Hardware
from lingpipe.pipeline.planning.moved_cuts import with_moved_cuts
from lingpipe.pipeline.planning.plan_search import Found, best
from lingpipe.pipeline.planning.planner import make_plan
from lingpipe.pipeline.planning.search_space import FREE, Choice
from lingpipe.pipeline.planning.step_forecast import forecast_step
from tests.support.planned_chains import dense, made
from tests.support.random_candidates import GIGA, random_subject, space_of, subject_of

# It takes a second to update a weight, and nothing to call a slot or to send something.
SLOW_UPDATE = Hardware('slow update', flops_per_s=GIGA, slot_s=0.0, weight_s=1.0)
AT_ONCE = Choice(2, 1, 1, '1f1b', 'none')


def chain(*widths):
    """A chain of layers of so many channels, from 8 on, and a loss."""
    return made(*(dense(f'layer_{i}', before, after, **({} if i else {'reads': {'x': 'image'}}))
                  for i, (before, after) in enumerate(itertools.pairwise((8, *widths)))))


def seconds_of(*forward_s):
    """Layers take so long forward, and twice as long backward; the loss takes no time."""
    return lambda elements: [(seconds, 2 * seconds) for seconds in (*forward_s, 0.0)]


def unequal(network=None, forward_s=(3.0, 1.0, 1.0, 1.0), **pipeline):
    """One layer that takes as long as the three after it, in two cells, with slow updates."""
    return subject_of(network or chain(8, 8, 8, 8), num_devices=2, hardware=SLOW_UPDATE,
                      seconds_of=seconds_of(*forward_s), **pipeline)


def moved(subject, choice, **search_args):
    """The candidate of a choice, and that with moved cuts."""
    candidates = Candidates(subject)
    candidate = candidates.of(choice, subject.limit)
    [other] = with_moved_cuts(candidates, Found([candidate]), **search_args).candidates
    return candidate, other


def cuts(candidate):
    return candidate.plan.partition.layers_per_cell


def test_where_updates_are_slow_weights_are_shared_out_rather_than_work():
    """With one micro-batch all cells wait for each other: slots take 18 s, however it is cut."""
    candidate, other = moved(unequal(), AT_ONCE)
    assert (cuts(candidate), candidate.step_s) == ((1, 4), 18.0 + 3.0)
    assert (cuts(other), other.step_s) == ((2, 3), 18.0 + 2.0)
    assert other.moved_gain == pytest.approx(1 / 21)
    assert candidate.moved_gain == 0.0


def test_where_not_all_cuts_can_be_tried_they_are_moved_step_by_step():
    """Ten layers take a second each, and twenty that have as many weights take next to nothing."""
    subject = subject_of(chain(*[8] * 30), num_devices=3, hardware=SLOW_UPDATE,
                         seconds_of=seconds_of(*[1.0] * 10, *[0.0] * 20))
    choice = Choice(3, 1, 1, '1f1b', 'none')
    candidate, other = moved(subject, choice, most_effort=40_000)   # for 93 of 406 partitions
    assert candidate.step_s > 30.0 + 20.0
    assert (cuts(other), other.step_s) == ((10, 10, 11), 30.0 + 10.0)
    assert moved(subject, choice)[1].step_s == other.step_s


def test_a_step_that_is_shorter_by_rounding_alone_moves_no_cut():
    """Two updates and then three take as long as three and then two, but are tried first."""
    draws = random.Random(5)
    for _ in range(20):
        forward_s = (3.0, *(draws.uniform(0.1, 0.7) for _ in range(4)))
        candidate, other = moved(unequal(chain(8, 8, 8, 8, 8), forward_s), AT_ONCE)
        assert (cuts(candidate), cuts(other)) == ((1, 5), (2, 4))


def test_devices_in_a_v_get_equal_work_though_cells_do_not():
    """The second device has two of three cells in a V; equal cells give it two thirds."""
    hardware = Hardware('free updates', flops_per_s=GIGA, slot_s=0.0, weight_s=0.0)
    subject = subject_of(chain(8, 8, 8, 8, 8, 8), num_devices=2, hardware=hardware,
                         seconds_of=seconds_of(*[1.0] * 6))
    candidate, other = moved(subject, Choice(3, 1, 16, 'zb_v', 'none'))
    assert cuts(candidate) == (2, 2, 3)
    assert cuts(other)[0] == 3
    assert other.step_s < 0.8 * candidate.step_s


def test_cuts_stay_where_the_faster_plan_would_hold_too_much():
    network = chain(64, 8, 8, 8)   # Two large weights, on a device each, and two small ones.
    candidate, other = moved(unequal(network), AT_ONCE)
    assert (cuts(candidate), cuts(other)) == ((1, 4), (2, 3))
    assert candidate.peak_bytes < other.peak_bytes
    candidate, other = moved(unequal(network, device_bytes=other.peak_bytes - 1), AT_ONCE)
    assert other is candidate
    assert cuts(other) == (1, 4)


def test_units_are_moved_as_a_whole():
    first = dense('first', 8, 8, reads={'x': 'image'})
    unit = Sequential.Params(name='unit', is_unit=True, layers=(dense('a', 8, 8), dense('b', 8, 8)))
    candidate, other = moved(unequal(made(first, unit, dense('c', 8, 8))), AT_ONCE)
    assert other is candidate   # Two weights for each device would be best, but cut the unit.
    assert cuts(other) == (1, 4)

    network = made(first, unit, *(dense(name, 8, 8) for name in 'cde'))
    subject = subject_of(network, num_devices=2, hardware=SLOW_UPDATE,
                         seconds_of=seconds_of(5.0, *[1.0] * 5))
    candidate, other = moved(subject, AT_ONCE)
    assert (cuts(candidate), cuts(other)) == ((1, 6), (3, 4))


@pytest.mark.parametrize('pipeline', [{'layers_per_cell': (1, 4)}, {'partition': 'variance'}])
def test_cuts_that_somebody_wants_stay(pipeline):
    candidate, other = moved(unequal(num_cells=2, **pipeline), AT_ONCE)
    assert other is candidate


def test_without_effort_and_for_next_to_nothing_cuts_stay():
    candidate, other = moved(unequal(), AT_ONCE, most_effort=0.0)
    assert other is candidate
    hardware = Hardware('quick update', flops_per_s=GIGA, slot_s=0.0, weight_s=0.01)
    subject = subject_of(chain(8, 8, 8, 8), num_devices=2, hardware=hardware,
                         seconds_of=seconds_of(3.0, 1.0, 1.0, 1.0))
    candidate, other = moved(subject, AT_ONCE)
    assert other is candidate


def test_the_fastest_comes_first_and_each_plan_once():
    candidates = Candidates(unequal())
    found = Found([candidates.of(choice, None) for choice in (
        Choice(1, 1, 1, '1f1b', 'none'), AT_ONCE, Choice(2, 1, 1, 'gpipe', 'none'))])
    assert [candidate.step_s for candidate in found.candidates] == [22.0, 21.0, 21.0]
    faster = with_moved_cuts(candidates, found)
    assert [candidate.step_s for candidate in faster.candidates] == [20.0, 22.0]


@pytest.mark.parametrize('seed', [0, 3, 5, 8, 13])
def test_params_to_run_give_exactly_the_plan_and_its_step(seed):
    rng = random.Random(seed)
    subject = random_subject(rng)
    subject.params.set(num_micro_batches=4)
    held = frozenset(FREE) - {'schedule', 'num_cells', 'recompute'}
    choices = list(space_of(subject, held=held).choices())
    candidates = Candidates(subject)
    peaks = [one.peak_bytes for one in best(candidates, choices, 12).candidates]
    subject.params.device_bytes = rng.choice([max(peaks), sum(peaks) / len(peaks)])
    candidates = Candidates(subject)
    found = with_moved_cuts(candidates, best(candidates, choices, 12))
    for candidate in found.candidates:
        params = candidates.params_to_run(candidate)
        plan = make_plan(subject.network, subject.batch_spec, params.validate(),
                         subject.devices_for(params), subject.is_frozen, subject.slot_bytes,
                         subject.update_bytes)
        assert candidate.peak_bytes <= subject.limit
        assert plan.partition.spans == candidate.plan.partition.spans
        assert plan.schedule == candidate.plan.schedule
        assert plan.peak_bytes() == candidate.plan.peak_bytes()
        if params.layer_seconds:
            assert forecast_step(plan, subject.hardware).step_s == pytest.approx(candidate.step_s)
