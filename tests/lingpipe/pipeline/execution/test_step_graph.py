"""Step graph: it calls every slot. Replay makes the same calls one by one, until one fails."""
from __future__ import annotations

import collections

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.learning import learning_rates
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.cell_trace import TracingOptions
from lingpipe.pipeline.execution.compiled_pipeline import CompiledPipeline, compile_pipeline
from lingpipe.pipeline.execution.replay import replay
from lingpipe.pipeline.execution.step_graph import add_tasks, stamped_slots
from lingpipe.pipeline.execution.task_values import ReplicaBatch, order_of_calls
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.execution.wire import Wire
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.pipeline.planning.dataflow import wire
from lingpipe.pipeline.planning.schedules import Slot, make_schedule
from tests.support.toy_layers import FailAbove

B, M = 4, 2


@pytest.fixture(scope='module')
def pipeline() -> CompiledPipeline:
    network = Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='in', input_dim=3, units=3), FailAbove.Params(name='fails'),
        layers.MeanSquaredErrorLoss.Params(name='loss'))).instantiate('model')
    spec = {'x': tf.TensorSpec([B // M, 3]), 'target': tf.TensorSpec([B // M, 3])}
    elements = wire(network, spec)
    cells = [Cell(0, elements[:1], '/device:CPU:0'), Cell(1, elements[1:], '/device:CPU:1')]
    learner = Learner.Params(
        learning_rate=learning_rates.Constant.Params(rate=0.01)).instantiate()
    trained = {0: elements[0].trained, 1: []}
    return compile_pipeline(
        make_schedule('1f1b', 2, M), cells, Variables(network, cells, learner, 0),
        TracingOptions(training=True, recompute='cell'),
        lambda cell, layout: Accumulators(cell.device, trained[cell.index], layout))


def given(x: float = 1.) -> ReplicaBatch:
    values = {'x': tf.fill([B, 3], x), 'target': tf.zeros([B, 3])}
    return ReplicaBatch(values, tf.constant(0, tf.int64), tf.constant(0))


def sums(pipeline: CompiledPipeline) -> list[np.ndarray]:
    found = [variable.numpy() for one in pipeline.accumulators for variable in one.variables()]
    for one in pipeline.accumulators:
        one.reset()
    return found


def test_tasks_and_accumulators_are_those_of_the_cells(pipeline):
    assert pipeline.tasks.keys() == {('F', 0), ('B', 0), ('B', 1)}
    assert [one.layout.num_scalars for one in pipeline.accumulators] == [0, 2]


def test_every_slot_is_one_call_on_its_device(pipeline):
    def body() -> tf.Tensor:
        added = add_tasks(pipeline, given(), Wire(None))
        with tf.control_dependencies(added.last):
            return tf.constant(0)

    graph = tf.compat.v1.wrap_function(body, []).graph
    devices = collections.Counter(op.device[-len('/device:CPU:0'):] for op in graph.get_operations()
                                  if op.type == 'StatefulPartitionedCall')
    assert devices == {'/device:CPU:0': 2 * M, '/device:CPU:1': M}


def test_stamps_are_in_the_order_of_devices(pipeline):
    assert stamped_slots(pipeline) == [
        Slot('F', 0, 0), Slot('F', 0, 1), Slot('B', 0, 0), Slot('B', 0, 1),
        Slot('B', 1, 0), Slot('B', 1, 1)]
    step = tf.compat.v1.wrap_function(
        lambda: add_tasks(pipeline, given(), Wire(None), is_timed=True).stamps, [])
    stamps = dict(zip(stamped_slots(pipeline), step().numpy(), strict=True))
    sums(pipeline)
    assert all(start <= end for start, end in stamps.values())
    # A call starts after those whose results it takes have started; their ends may be stamped late.
    assert stamps[Slot('F', 0, 0)][0] <= stamps[Slot('B', 1, 0)][0]


def test_what_is_taken_was_made_before(pipeline):
    order = order_of_calls(pipeline)
    assert sorted(order) == sorted(stamped_slots(pipeline))
    for m in range(M):
        places = [order.index(slot) for slot in
                  (Slot('F', 0, m), Slot('B', 1, m), Slot('B', 0, m))]
        assert places == sorted(places)


def test_a_replay_adds_up_what_the_graph_does(pipeline):
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
