"""Step graph: it calls every slot on its device."""
from __future__ import annotations

import collections

import tensorflow as tf

from lingpipe.pipeline.execution.step_graph import add_tasks
from lingpipe.pipeline.execution.wire import Wire
from tests.support.two_cells import M, given


def test_every_slot_is_one_call_on_its_device(pipeline):
    def body() -> tf.Tensor:
        added = add_tasks(pipeline, given(), Wire(None))
        with tf.control_dependencies(added.last):
            return tf.constant(0)

    graph = tf.compat.v1.wrap_function(body, []).graph
    devices = collections.Counter(op.device[-len('/device:CPU:0'):] for op in graph.get_operations()
                                  if op.type == 'StatefulPartitionedCall')
    assert devices == {'/device:CPU:0': 2 * M, '/device:CPU:1': M}
