"""Skipped steps: when they make a run fail, and what is said before that."""
import pytest

from lingpipe.training.skipped_steps import SkippedSteps, skipped_text
from lingpipe.training.step_counts import StepCounts

LIMITS = SkippedSteps(num_steps=10, max_nonfinite_in_a_row=3)
NOT_FINITE = {'is_finite': 0., 'weight': 8., 'loss': float('nan'), 'gradient_norm': float('inf')}
WITHOUT_WEIGHT = {'is_finite': 1., 'weight': 0.}


@pytest.mark.parametrize(('counts', 'expected'), [
    (StepCounts(5, 4, 2, 1), ''),
    (StepCounts(5, 4, 3, 1), '3 steps in a row were not finite'),
    (StepCounts(10, 1, 1, 9), ''),
    (StepCounts(10, 2, 2, 0), 'no step of this run was finite'),
    (StepCounts(9, 2, 2, 0), '')])
def test_run_fails_by_steps_in_a_row_or_by_all_of_them(counts, expected):
    assert LIMITS.nonfinite_failure(counts) == expected


def test_run_fails_at_its_end_if_nothing_was_updated():
    LIMITS.check_weight(StepCounts(9, has_no_weight=True))
    LIMITS.check_weight(StepCounts(10, num_updates=1, has_no_weight=True))
    with pytest.raises(ValueError, match='^no step of this run updated anything: the weights of '
                                         'the examples of step 10 add up to 0; look at'):
        LIMITS.check_weight(StepCounts(10, has_no_weight=True))


def test_every_step_that_is_not_finite_has_a_line():
    before = StepCounts(4, 1, 1)
    assert skipped_text(before, before.after(NOT_FINITE), NOT_FINITE) == (
        'step 5 is skipped: loss nan and gradient norm inf (2 in a row)')


def test_steps_without_weight_have_one_line():
    before = StepCounts(4, num_updates=4)
    first = before.after(WITHOUT_WEIGHT)
    assert skipped_text(before, first, WITHOUT_WEIGHT) == (
        'step 5 is skipped, and so are those after it that are alike: the weights of its '
        'examples add up to 0')
    assert skipped_text(first, first.after(WITHOUT_WEIGHT), WITHOUT_WEIGHT) == ''
