"""Replay: the calls of a step one by one, until one fails."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.pipeline.execution.replay import replay
from lingpipe.pipeline.execution.step_graph import add_tasks
from lingpipe.pipeline.execution.wire import Wire
from tests.support.two_cells import given, make_pipeline, sums


@pytest.mark.parametrize('schedule', ['1f1b', 'zb_h1'])
def test_a_replay_adds_up_what_the_graph_does(schedule):
    pipeline = make_pipeline(schedule)

    def body() -> tf.Tensor:
        with tf.control_dependencies(add_tasks(pipeline, given(), Wire(None)).last):
            return tf.constant(0)

    tf.compat.v1.wrap_function(body, [])()
    of_graph = sums(pipeline)
    replay([pipeline], [given()], Wire(None))
    for one, other in zip(of_graph, sums(pipeline), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_replay_stops_at_the_task_that_fails_and_says_why(pipeline):
    with pytest.raises(tf.errors.InvalidArgumentError, match='above 1000'):
        replay([pipeline], [given(x=1e6)], Wire(None))
    sums(pipeline)
