"""Cell update: all cells update or none, and either way the next step starts from empty sums."""
from __future__ import annotations

import numpy as np
import pytest

from tests.lingpipe.pipeline.execution.test_update import batch_of, program_of, values_of


@pytest.mark.parametrize('num_cells', [1, 2])
def test_a_step_that_is_not_finite_updates_no_cell_and_leaves_no_sum(num_cells):
    good, bad = batch_of(np.ones([4, 3])), batch_of(np.full([4, 3], np.nan))
    disturbed, plain = program_of(good, num_cells), program_of(good, num_cells)
    before = values_of(disturbed)
    assert not disturbed.train_step(bad, 0)['is_finite']
    for key, value in values_of(disturbed).items():
        np.testing.assert_array_equal(value, before[key], err_msg=key)

    for program in (disturbed, plain):
        assert program.train_step(good, 0)['is_finite']
    for key, value in values_of(disturbed).items():
        np.testing.assert_array_equal(value, values_of(plain)[key], err_msg=key)
