"""SearchParams: the paper's penalty, and candidates enough for a beam."""
from __future__ import annotations

import pytest

from lingpipe.pipeline.decoding.search_params import SearchParams, length_penalty


@pytest.mark.parametrize(('length', 'alpha', 'penalty'), [
    (1, .6, 1.), (7, 1., 2.), (13, 2., 9.), (25, 0., 1.)])
def test_the_length_penalty_is_that_of_the_paper(length, alpha, penalty):
    assert float(length_penalty(length, alpha)) == pytest.approx(penalty)


@pytest.mark.parametrize(('beam_size', 'num_ends', 'num_candidates'), [
    (1, 1, 1), (2, 1, 4), (5, 1, 10), (1, 3, 1), (5, 3, 20)])
def test_enough_candidates_are_wanted_that_a_beam_full_of_them_goes_on(
        beam_size, num_ends, num_candidates):
    assert SearchParams(beam_size=beam_size).num_candidates(num_ends) == num_candidates
