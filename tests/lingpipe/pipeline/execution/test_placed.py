"""Placed: a function runs on the device of its call, wherever its inputs are."""
from __future__ import annotations

import tensorflow as tf

from lingpipe.pipeline.execution.placed import call_on, placed


def double(x: tf.Tensor) -> tf.Tensor:
    return 2. * x


def ones_on_the_first_device() -> tf.Tensor:
    with tf.device('CPU:0'):
        return tf.ones([3])


def test_a_placed_function_is_never_inlined():
    function = placed(double).get_concrete_function(tf.TensorSpec([3]))
    assert function.function_def.attr['_noinline'].b


def test_the_result_of_an_eager_call_stays_on_the_device_of_the_call():
    result = call_on('CPU:2', placed(double), [ones_on_the_first_device()])
    assert result.backing_device.endswith('CPU:2')   # `device` is where TensorFlow shows it


def test_an_eager_call_gives_what_the_function_gives():
    result = call_on('CPU:2', placed(double), [ones_on_the_first_device()])
    assert result.numpy().tolist() == [2., 2., 2.]


def test_arguments_may_be_nested():
    def total(pair: dict[str, tf.Tensor], c: tf.Tensor) -> tf.Tensor:
        return pair['a'] + 10. * pair['b'] + 100. * c

    arguments = [{'b': tf.constant(2.), 'a': tf.constant(1.)}, tf.constant(3.)]
    assert float(call_on('CPU:1', placed(total), arguments)) == 321.


def test_a_call_while_a_graph_is_traced_becomes_part_of_it():
    def body(x: tf.Tensor) -> tf.Tensor:
        return call_on('/device:CPU:1', placed(double), [x])

    graph = tf.compat.v1.wrap_function(body, [tf.TensorSpec([3])]).graph
    call, = (op for op in graph.get_operations() if op.type.endswith('PartitionedCall'))
    assert call.device.endswith('CPU:1')
