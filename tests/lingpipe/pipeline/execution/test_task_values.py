"""Task values: every call takes its part of the mini-batch and what earlier calls have given."""
from __future__ import annotations

import numpy as np
import tensorflow as tf

from lingpipe.cluster import HOME
from lingpipe.pipeline.execution.task_values import ReplicaBatch, TaskValues, order_of_calls
from lingpipe.pipeline.execution.wire import Wire
from lingpipe.pipeline.planning.schedule import Slot
from tests.support.two_cells import M

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def values_of(pipeline) -> TaskValues:
    """The values of step 7 of a replica whose first micro-batch is the tenth of the update."""
    batch = ReplicaBatch({HOME: {'x': tf.constant(X), 'target': tf.constant(-X)}},
                         tf.constant(7, tf.int64), tf.constant(10))
    return TaskValues(pipeline, batch, Wire(None))


def test_what_is_taken_was_made_before(pipeline):
    order = order_of_calls(pipeline)
    assert sorted(order) == sorted(pipeline.schedule.device_of)
    for m in range(M):
        places = [order.index(slot) for slot in
                  (Slot('F', 0, m), Slot('B', 1, m), Slot('B', 0, m))]
        assert places == sorted(places)


def test_a_micro_batch_is_the_rows_of_its_index(pipeline):
    values = values_of(pipeline)
    for m, rows in enumerate((X[:2], X[2:])):
        taken, = values.taken_by(Slot('F', 0, m))
        np.testing.assert_array_equal(taken, rows)


def test_micro_batches_are_counted_from_the_first_of_the_replica(pipeline):
    values = values_of(pipeline)
    positions = [[int(tensor) for tensor in values.position(Slot('F', 0, m))] for m in range(M)]
    assert positions == [[7, 10], [7, 11]]


def test_a_task_takes_what_a_task_of_another_cell_has_given(pipeline):
    values, token = values_of(pipeline), tf.constant(0)
    given = tf.fill([2, 3], 5.)
    values.keep(Slot('F', 0, 1), [given, token])

    taken = {leaf[0].name: tensor for leaf, tensor in zip(
        pipeline.tasks['B', 1].inputs, values.taken_by(Slot('B', 1, 1)), strict=True)}
    assert taken.keys() == {'x', 'target'}
    np.testing.assert_array_equal(taken['x'], given)
    np.testing.assert_array_equal(taken['target'], -X[2:])


def test_a_backward_task_takes_the_gradient_that_a_later_cell_has_given(pipeline):
    values, token = values_of(pipeline), tf.constant(0)
    gradient = tf.fill([2, 3], 6.)
    values.keep(Slot('B', 1, 0), [gradient, token])
    np.testing.assert_array_equal(values.taken_by(Slot('B', 0, 0))[-1], gradient)
