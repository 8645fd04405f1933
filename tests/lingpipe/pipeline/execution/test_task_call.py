"""Task call: one op, on its device, that gives what a call of the function gives."""
from __future__ import annotations

import tensorflow as tf

from lingpipe.pipeline.execution.task_call import TaskCall

DEVICE = '/device:CPU:1'


def _function(variable: tf.Variable) -> tf.types.experimental.ConcreteFunction:
    def body(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        return [x + variable, tf.reduce_sum(y)]

    function = tf.function(body, autograph=False, experimental_attributes={'_noinline': True})
    return function.get_concrete_function(tf.TensorSpec([2]), tf.TensorSpec([3], tf.int32))


def test_calls_give_what_the_function_gives():
    variable = tf.Variable([1., 2.])  # A function does not keep what it captures.
    function = _function(variable)

    def body(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        call = TaskCall(function, DEVICE)
        first, count = call.add([x, y])
        second, _ = call.add([first, y])
        return [second, count]

    step = tf.compat.v1.wrap_function(body, [tf.TensorSpec([2]), tf.TensorSpec([3], tf.int32)])
    x, count = step(tf.constant([10., 20.]), tf.constant([1, 2, 3]))
    assert x.numpy().tolist() == [12., 24.]
    assert count.numpy() == 6


def test_every_call_is_on_the_device_and_after_what_it_waits_for():
    variable = tf.Variable([1., 2.])  # A function does not keep what it captures.
    function = _function(variable)

    def body(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        call = TaskCall(function, DEVICE)
        for name in ('one', 'another'):
            with tf.control_dependencies([tf.no_op(name=name)]):
                x, _ = call.add([x, y])
        return x

    graph = tf.compat.v1.wrap_function(
        body, [tf.TensorSpec([2]), tf.TensorSpec([3], tf.int32)]).graph
    first, second = [op for op in graph.get_operations() if op.type == 'StatefulPartitionedCall']
    assert first.device == second.device
    assert second.device.endswith(DEVICE)
    waits = [[op.name for op in call.control_inputs] for call in (first, second)]
    assert waits == [['one'], ['another']]
    without_shapes = {'_disable_call_shape_inference': tf.compat.v1.AttrValue(b=True)}
    assert dict(second.node_def.attr) == {**first.node_def.attr, **without_shapes}
