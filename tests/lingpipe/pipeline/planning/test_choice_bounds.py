"""Bounds of choices: no plan is faster, and a limit that nothing fits has no bound."""
import math

from lingpipe.pipeline.planning.candidates import Candidates
from lingpipe.pipeline.planning.choice_bounds import ChoiceBounds
from lingpipe.pipeline.planning.choice_costs import ChoiceCosts
from lingpipe.pipeline.planning.hardware import Hardware
from lingpipe.pipeline.planning.search_space import Choice
from tests.support.planned_chains import CHAIN, made
from tests.support.random_candidates import GIGA, space_of, subject_of


def test_no_plan_is_faster_than_the_bounds_of_its_choice():
    hardware = Hardware('some', flops_per_s=GIGA, memory_bytes_per_s=GIGA, link_bytes_per_s=GIGA,
                        slot_s=1e-6)
    subject = subject_of(made(*CHAIN), hardware=hardware, num_devices=3, num_micro_batches=4)
    held = frozenset({'num_replicas', 'num_micro_batches'})
    bounds, candidates = ChoiceBounds(ChoiceCosts(subject)), Candidates(subject)
    for choice in space_of(subject, held=held).choices():
        candidate = candidates.of(choice, None)
        assert 0 < bounds.of_choice(choice) <= candidate.step_s, choice
        assert 0 < bounds.when_cut(choice) <= candidate.step_s, choice
        limit, memory = candidate.peak_bytes, candidate.plan.forecast.memory
        assert 0 < bounds.within(choice, limit, memory) <= candidate.step_s, choice
        assert bounds.in_v(choice, limit, memory) <= candidate.step_s, choice


def test_nothing_fits_a_byte():
    subject = subject_of(made(*CHAIN), num_cells=2, num_micro_batches=4)
    choice = Choice.of(subject.params)
    bounds, unlimited = ChoiceBounds(ChoiceCosts(subject)), Candidates(subject).of(choice, None)
    memory = unlimited.plan.forecast.memory
    assert math.isinf(bounds.within(choice, 1.0, memory))
    enough_s = bounds.within(choice, unlimited.peak_bytes, memory)
    assert bounds.of_choice(choice) <= enough_s <= unlimited.step_s


def test_a_plan_of_fit_that_fits_nearly_all_is_bound_as_closely_as_without_a_limit():
    """Its cuts are known, so it waits as long as without a limit."""
    subject = subject_of(made(*CHAIN), num_cells=3, num_micro_batches=2, recompute='fit')
    bounds, candidates = ChoiceBounds(ChoiceCosts(subject)), Candidates(subject)
    choice = Choice.of(subject.params)
    unlimited = candidates.of(choice, None)
    limit, memory = unlimited.peak_bytes - 1, unlimited.plan.forecast.memory
    bound_s = bounds.within(choice, limit, memory)
    assert bounds.when_cut(choice) <= bound_s <= candidates.of(choice, limit).step_s
    assert 0.99 * unlimited.step_s < bound_s
