"""Program steps: accumulated mini-batches make one update, and timed steps change no bit."""
from __future__ import annotations

import numpy as np

from tests.lingpipe.pipeline.execution.test_update import batch_of, program_of, values_of

BATCH = batch_of(np.arange(12.).reshape(4, 3))


def test_accumulated_mini_batches_are_one_update():
    program = program_of(BATCH, 2, ema_decay=0.5)
    before = values_of(program)
    program.accumulate(BATCH, 0, 0)
    for key, value in values_of(program).items():
        np.testing.assert_array_equal(value, before[key], err_msg=key)
    assert float(program.train_step(BATCH, 0, 1)['weight']) == 8


def test_a_timed_step_trains_as_any_other_and_knows_all_slots():
    timed, plain = program_of(BATCH, 2), program_of(BATCH, 2)
    results, times = timed.timed_step(BATCH, 0)
    assert results.keys() == plain.train_step(BATCH, 0).keys()
    assert times.timeline.spans.keys() == timed.plan.schedule.device_of.keys()
    for key, value in values_of(timed).items():
        np.testing.assert_array_equal(value, values_of(plain)[key], err_msg=key)
