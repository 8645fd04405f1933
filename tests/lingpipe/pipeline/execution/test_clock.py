"""Clock: who tells the time where ops must be deterministic."""
from __future__ import annotations

import os
import time

import pytest
import tensorflow as tf

from lingpipe import cluster
from lingpipe.pipeline.execution import clock
from tests.support.forks import Fork

CPU = '/job:localhost/task:0/device:CPU:0'


def is_now(moment: float) -> bool:
    """Whether a moment is less than a minute ago."""
    return 0. <= time.time() - moment < 60.


def test_the_time_is_that_of_tensorflow() -> None:
    moment = clock.now(CPU)
    assert moment.dtype == tf.float64
    assert is_now(float(moment))


def check_deterministic_ops() -> None:
    """Tells the time in the graph of a step, in a process of its own whose ops are deterministic.

    TensorFlow refused: a run with --timeline, and one on workers whose steps became slow, ended.
    tests/lingpipe/training/test_timed_steps.py has the clock of a worker.
    """
    cluster.configure(num_cpu_devices=2)
    with pytest.raises(tf.errors.FailedPreconditionError):
        tf.timestamp()

    def body() -> list[tf.Tensor]:
        first = clock.now('/device:CPU:1')
        with tf.control_dependencies([first]):
            return [first, clock.now('/device:CPU:0')]

    first, second = (float(moment) for moment in tf.compat.v1.wrap_function(body, [])())
    assert first <= second
    assert is_now(second)


def test_python_tells_the_time_where_ops_must_be_deterministic() -> None:
    process = Fork(check_deterministic_ops, env={**os.environ, 'TF_DETERMINISTIC_OPS': '1'})
    _, err = process.communicate(timeout=100)
    assert process.returncode == 0, err[-2000:]
