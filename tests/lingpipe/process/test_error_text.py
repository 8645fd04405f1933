"""Promises about the sentence that a command prints for an exception."""
import socket

import keras
import numpy as np
import pytest
import tensorflow as tf

from lingpipe.process.error_text import blaming, sentence


def gather(index):
    @tf.function
    def body(x):
        with tf.name_scope('model/embedding'):
            return tf.gather(tf.range(3), x)
    return body(tf.constant(index))


class Broken(keras.layers.Layer):
    def call(self, inputs):
        raise RuntimeError('my bug')


@pytest.mark.parametrize('call, expected', [
    (lambda: int('x'), "invalid literal for int() with base 10: 'x'"),
    (lambda: 1 / 0, 'division by zero'),
    (lambda: open('/none/file'), 'No such file or directory: /none/file'),
    (lambda: socket.inet_aton('x'), 'illegal IP address string passed to inet_aton'),
    (lambda: {}['units'], "KeyError: 'units'"),
    (lambda: None + 1, "TypeError: unsupported operand type(s) for +: 'NoneType' and 'int'"),
    (lambda: Broken()(tf.ones([1])), 'RuntimeError: my bug'),
    (lambda: gather(5),
     'InvalidArgumentError: indices = 5 is not in [0, 3) (at model/embedding/GatherV2)'),
    (lambda: tf.ones([2]) + tf.ones([3]),
     'InvalidArgumentError: Incompatible shapes: [2] vs. [3]'),
])
def test_an_exception_is_one_line_that_says_what_happened(call, expected):
    with pytest.raises(Exception) as raised:
        call()
    assert sentence(raised.value) == expected


def test_an_exception_without_a_text_is_its_type():
    assert sentence(RuntimeError()) == 'RuntimeError'


@pytest.mark.parametrize('fprop', [
    np.tanh, lambda x: x.numpy(), lambda x: x if tf.reduce_sum(x) > 0 else -x])
def test_code_of_a_layer_that_takes_a_tensor_for_an_array_learns_what_to_use(fprop):
    with pytest.raises(Exception) as raised, tf.Graph().as_default(), blaming('model/a'):
        fprop(tf.ones([2]))
    assert sentence(raised.value).endswith(
        '(in layer model/a; fprop is traced, so use operations of TensorFlow, as tf.tanh for '
        'np.tanh, and tf.where or tf.cond for if)')


def test_a_layer_is_named_once():
    with pytest.raises(KeyError) as raised, blaming('model/a'), blaming('model/a'):
        raise KeyError('units')
    assert sentence(raised.value) == "KeyError: 'units' (in layer model/a)"
