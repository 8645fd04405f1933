"""Renewal: functions stay as they were traced, and use the successors of what was lost."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from lingpipe.layers.context import seed_key
from lingpipe.pipeline.execution import renewal
from lingpipe.pipeline.execution.renewal import NotRenewableError, renew
from lingpipe.pipeline.execution.seed_keys import eager_key

WORKER = '/device:CPU:3'   # No other test leaves anything there.


@pytest.fixture(autouse=True)
def lost_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes a device of this process for a worker that was lost, although it still answers."""
    monkeypatch.setattr(renewal, 'is_on_worker', lambda device: device.endswith(WORKER))


def traced(body: Callable[[], tf.Tensor]) -> Any:
    return tf.function(body, autograph=False).get_concrete_function()


def test_what_a_checkpoint_holds_has_no_value_and_all_else_on_workers_is_zero() -> None:
    here = tf.Variable(100.)
    with tf.device(WORKER):
        saved, total = tf.Variable(1.), tf.Variable(20.)
    function = traced(lambda: saved + total + here)
    number_of_traces = len(function.graph.get_operations())
    assert function() == 121.

    renew([saved, here])
    with pytest.raises(tf.errors.FailedPreconditionError):
        function()
    saved.assign(3.)
    assert function() == 103.
    assert saved.device.endswith(WORKER)
    assert len(function.graph.get_operations()) == number_of_traces


def test_functions_within_functions_and_later_ones_use_the_successors() -> None:
    with tf.device(WORKER):
        saved = tf.Variable(1.)
    inner = traced(lambda: 2. * saved)
    outer = traced(lambda: 1. + inner())
    renew([saved])
    saved.assign(5.)
    assert outer() == 11.
    assert traced(lambda: inner() + saved)() == 15.


def test_a_key_of_random_numbers_is_made_once_more() -> None:
    before = eager_key(5, 'model/dropout', 'mask', WORKER)

    def body() -> tf.Tensor:
        inside = tf.compat.v1.placeholder(tf.int64, [])
        tf.compat.v1.get_default_graph().add_capture(before, inside)
        return inside + 0

    function = traced(body)
    renew([])
    (key,) = function.captured_inputs
    assert key is not before and key.device == before.device
    assert function() == seed_key(5, 'model/dropout', 'mask')


def test_another_value_that_was_on_a_worker_is_not_taken_for_one_of_the_new_worker() -> None:
    with tf.device(WORKER):
        value = tf.ones([1000])   # `FuncGraph.capture` would copy a smaller one.
    function = traced(lambda: value + 1.)
    with pytest.raises(NotRenewableError, match='float32'):
        renew([])
    del function
