"""Plan search: the fastest come first; one that must end says what it has left out."""
from __future__ import annotations

import dataclasses
import math

import pytest

from lingpipe.pipeline.planning.candidate import distinct
from lingpipe.pipeline.planning.candidates import Candidates
from lingpipe.pipeline.planning.plan_search import best, fastest
from tests.support.planned_chains import CHAIN, made
from tests.support.random_candidates import space_of, subject_of

HELD = frozenset({'num_replicas', 'num_micro_batches'})


def search(limit=None, **search_args):
    """The subject, its choices, and what a search finds."""
    subject = subject_of(made(*CHAIN), num_devices=2, num_micro_batches=4, device_bytes=limit)
    choices = list(space_of(subject, held=HELD).choices())
    return subject, choices, best(Candidates(subject), choices, **search_args)


def all_that_fit(subject, choices):
    candidates = Candidates(subject)
    found = [candidates.of(choice, subject.limit) for choice in choices]
    return [candidate for candidate in found if candidate is not None]


def some_limit():
    """A limit that many plans break."""
    subject, choices, _ = search(num_wanted=1)
    peaks = sorted(candidate.peak_bytes for candidate in all_that_fit(subject, choices))
    return peaks[len(peaks) // 3]


def test_with_effort_enough_it_finds_the_fastest_and_leaves_nothing():
    subject, choices, found = search(num_wanted=5)
    expected = list(distinct(fastest(Candidates(subject), choices)))[:5]
    assert [one.choice for one in found.candidates] == [one.choice for one in expected]
    assert (found.num_left, found.left_s) == (0, math.inf)


@pytest.mark.parametrize('with_limit', [False, True])
@pytest.mark.parametrize('most_effort', [0.0, 2_000.0])
def test_with_little_effort_it_ends_and_no_choice_that_is_left_beats_its_bound(
        with_limit, most_effort):
    limit = some_limit() if with_limit else None
    subject, choices, found = search(limit, num_wanted=5, most_effort=most_effort)
    all_of_them = all_that_fit(subject, choices)
    assert found.num_left > 0
    known = {one.choice for one in found.candidates}
    unknown_s = [one.step_s for one in all_of_them if one.choice not in known]
    last_s = found.candidates[-1].step_s if len(found.candidates) == 5 else math.inf
    assert found.left_s <= min((step_s for step_s in unknown_s if step_s < last_s),
                               default=math.inf)
    assert limit is None or all(one.peak_bytes <= limit for one in found.candidates)


def test_with_some_effort_the_promising_are_found():
    """It has not proven that they are the fastest."""
    subject, choices, found = search(some_limit(), num_wanted=3, most_effort=30_000.0)
    fastest_s = min(one.step_s for one in all_that_fit(subject, choices))
    assert found.candidates[0].step_s <= 1.1 * fastest_s


def test_it_finds_a_plan_that_fits_barely_and_leaves_the_same_each_time():
    subject, choices, _ = search(num_wanted=1)
    least = Candidates(subject).least_limit(choices).limit
    twice = [search(least, num_wanted=1, most_effort=1.0)[2] for _ in range(2)]
    first, second = ([one.choice for one in found.candidates] for found in twice)
    assert first == second
    assert dataclasses.replace(twice[0], candidates=()) == dataclasses.replace(
        twice[1], candidates=())


def test_the_least_limit_says_how_many_choices_were_not_tried():
    subject, choices, _ = search(num_wanted=1)
    exact = Candidates(subject).least_limit(choices)
    hasty = Candidates(subject).least_limit(choices, most_effort=0.0)
    assert exact.num_left == 0
    assert 0 < hasty.num_left < len(choices)
    assert hasty.limit >= exact.limit
