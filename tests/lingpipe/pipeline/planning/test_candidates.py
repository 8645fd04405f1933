"""Candidates: the fastest plan that fits comes first, and its Params give it exactly."""
from __future__ import annotations

import dataclasses
import itertools
import random

import pytest

from lingpipe.pipeline.planning.candidates import Candidates
from lingpipe.pipeline.planning.hardware import Hardware
from lingpipe.pipeline.planning.plan_search import fastest
from lingpipe.pipeline.planning.planner import make_plan
from lingpipe.pipeline.planning.search_space import FREE
from tests.support.planned_chains import CHAIN, SPEC, dense, made
from tests.support.random_candidates import (
    BATCH_SIZE,
    GIGA,
    check_random,
    made_one_by_one,
    random_space,
    random_subject,
    slot_bytes,
    space_of,
    subject_of,
)


def best(subject, **fields):
    return next(fastest(Candidates(subject), space_of(subject, **fields).choices()), None)


def test_candidates_come_in_the_order_of_their_times_and_all_come():
    subject = subject_of(made(*CHAIN), num_devices=3)
    choices = list(space_of(subject, held=frozenset({'num_replicas', 'recompute'})).choices())
    found = list(fastest(Candidates(subject), choices))
    assert [candidate.step_s for candidate in found] == sorted(c.step_s for c in found)
    assert sorted(candidate.choice for candidate in found) == sorted(choices)


def test_equal_layers_on_free_links_are_split_among_all_devices():
    network = made(dense('first', 8, 8, reads={'x': 'image'}),
                   *(dense(f'layer_{i}', 8, 8) for i in range(3)))
    candidate = best(subject_of(network), held=frozenset({'num_replicas'}))
    assert candidate.choice.num_cells == 4
    assert candidate.choice.num_micro_batches == BATCH_SIZE
    assert candidate.choice.recompute == 'none'


def test_slow_links_leave_one_device():
    hardware = Hardware('slow links', flops_per_s=GIGA, link_bytes_per_s=1.0, weight_s=0.0)
    candidate = best(subject_of(made(*CHAIN), hardware=hardware))
    assert candidate.num_devices == 1
    assert candidate.limited_by in ('work', 'overhead')


def test_slots_that_take_long_to_call_leave_few_micro_batches():
    hardware = Hardware('slow calls', flops_per_s=GIGA, slot_s=1.0)
    candidate = best(subject_of(made(*CHAIN), hardware=hardware))
    assert candidate.choice.num_micro_batches == 1
    assert candidate.limited_by == 'overhead'


@pytest.mark.parametrize('recompute', ['none', 'cell'])
def test_params_to_run_give_exactly_the_plan(recompute):
    network = made(*CHAIN)
    subject = subject_of(network, recompute=recompute)
    candidates = Candidates(subject)
    choices = space_of(subject, held=frozenset({'recompute'})).choices()
    for candidate in itertools.islice(fastest(candidates, choices), 12):
        params = candidates.params_to_run(candidate)
        plan = make_plan(network, SPEC, params, subject.devices[:params.num_devices],
                         slot_bytes=slot_bytes)
        assert plan.partition.spans == candidate.plan.partition.spans
        assert plan.schedule == candidate.plan.schedule
        assert plan.peak_bytes() == candidate.plan.peak_bytes()


@pytest.mark.parametrize('seed', [32, 49, 68])
def test_params_to_run_give_exactly_the_plan_under_a_limit(seed):
    """The cuts by hand, together with 'fit', gave another plan than the one that was promised."""
    rng = random.Random(seed)
    subject = random_subject(rng)
    subject.params.set(num_cells=rng.randint(2, 4), num_micro_batches=rng.choice([1, 2, 4]),
                       recompute='fit')
    choices = list(space_of(subject, held=frozenset(FREE) - {'schedule', 'num_cells'}).choices())
    peaks = [candidate.peak_bytes for candidate in made_one_by_one(subject, choices)]
    least = Candidates(subject).least_limit(choices).limit
    subject.params.device_bytes = rng.uniform(least, max(peaks))
    candidates = Candidates(subject)
    for candidate in itertools.islice(fastest(candidates, choices), 6):
        params = candidates.params_to_run(candidate)
        plan = make_plan(subject.network, subject.batch_spec, params.validate(),
                         subject.devices_for(params), subject.is_frozen, subject.slot_bytes,
                         subject.update_bytes)
        assert plan.partition.spans == candidate.plan.partition.spans
        assert plan.schedule == candidate.plan.schedule
        assert plan.peak_bytes() == candidate.plan.peak_bytes()


def test_the_least_limit_fits_and_a_byte_less_does_not():
    subject = subject_of(made(*CHAIN), num_devices=2, num_micro_batches=4)
    choices = list(space_of(subject, held=frozenset({'num_micro_batches'})).choices())
    least, choice, _ = Candidates(subject).least_limit(choices)
    for limit, fits in ((least, True), (least - 1, False)):
        limited = dataclasses.replace(
            subject, params=subject.params.copy().set(device_bytes=limit))
        found = list(fastest(Candidates(limited), choices))
        assert bool(found) == fits
        assert not fits or choice in [candidate.choice for candidate in found]


@pytest.mark.parametrize(('seed', 'with_fit'), [
    *((seed, False) for seed in range(3)), *((seed, True) for seed in (100, 197, 278))])
def test_no_random_plan_fits_a_byte_less_than_the_least_limit(seed, with_fit):
    """All schedules are tried, with split backwards and early recomputation.

    With 'fit', which takes longer, the seeds are those of which one choice that needs less was
    missed.
    """
    rng = random.Random(seed)
    subject = random_subject(rng)
    if with_fit:
        subject.params.set(num_cells=rng.randint(1, 4), num_micro_batches=rng.choice([1, 2, 4]))
        held = frozenset(FREE) - {'schedule', 'recompute'}
        choices = list(space_of(subject, held=held).choices())
    else:
        choices = [choice for choice in random_space(rng, subject).choices()
                   if choice.recompute != 'fit']
    least, choice, _ = Candidates(subject).least_limit(choices)
    subject.params.device_bytes = least
    assert Candidates(subject).of(choice, least).peak_bytes <= least
    subject.params.device_bytes = least - 1
    assert not list(made_one_by_one(subject, choices))


@pytest.mark.parametrize('seed', [*range(40), 104, 149, 161, 1619])
def test_the_first_is_not_beaten_and_fits(seed):
    check_random(seed)
