"""Readiness: equal replicas before the first step, whole sums after one that failed."""
from __future__ import annotations

import pytest
import tensorflow as tf

from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from tests.lingpipe.pipeline.execution import test_program


def test_a_mini_batch_after_a_failed_one_of_the_same_update_is_refused():
    class Breaks(Layer):
        """Returns x, or raises an error if it is large."""

        def fprop(self, theta, ctx, x):
            with tf.control_dependencies(
                    [tf.debugging.Assert(tf.reduce_all(x < 1e6), ['too large'])]):
                return tf.identity(x)

        def cost(self, x):
            return Cost(0, 0, x)

    program = test_program.program_of(test_program.network_with(Breaks.Params(name='breaks')))
    good, bad = test_program.batches(2)
    bad['image'] += 1e9
    program.accumulate(good, 0, 0)
    with pytest.raises(tf.errors.InvalidArgumentError, match='too large'):
        program.accumulate(bad, 0, 1)
    with pytest.raises(
            ValueError,
            match=r'mini-batch 2 of the update of step 0 comes after one that failed.*index 0'):
        program.train_step(good, 0, 2)
    program.train_step(good, 0, 0)


def test_replicas_start_from_what_the_first_was_restored_to():
    program = test_program.program_of(num_micro_batches=2, num_replicas=2)
    for variable in program.variables().values():
        variable.assign(variable + tf.ones_like(variable))
    program.train_step(test_program.batches(1)[0], 0)
    program.check_replicas()
