"""Step counts: what each kind of step adds to them."""
from lingpipe.training.step_counts import StepCounts

FINITE = {'is_finite': 1., 'weight': 8.}
NOT_FINITE = {'is_finite': 0., 'weight': 8.}
WITHOUT_WEIGHT = {'is_finite': 1., 'weight': 0.}


def test_every_step_counts_and_those_that_are_not_finite_by_themselves():
    counts = StepCounts().after(FINITE).after(NOT_FINITE).after(NOT_FINITE)
    assert counts == StepCounts(
        step=3, num_nonfinite=2, num_nonfinite_in_a_row=2, num_updates=1)
    assert counts.after(FINITE) == StepCounts(
        step=4, num_nonfinite=2, num_nonfinite_in_a_row=0, num_updates=2)


def test_step_without_weight_is_no_update():
    counts = StepCounts().after(WITHOUT_WEIGHT)
    assert counts == StepCounts(step=1, num_updates=0, has_no_weight=True)
    assert counts.after(NOT_FINITE).has_no_weight
    assert counts.after(FINITE) == StepCounts(step=2, num_updates=1)
