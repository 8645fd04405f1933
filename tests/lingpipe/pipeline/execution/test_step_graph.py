"""Step graph: it calls every slot on its device."""
from __future__ import annotations

import collections

import tensorflow as tf

from lingpipe.pipeline.execution.step_graph import add_tasks, stamped_slots
from lingpipe.pipeline.execution.wire import Wire
from lingpipe.pipeline.planning.schedule import Slot
from tests.support.two_cells import M, given, sums


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
