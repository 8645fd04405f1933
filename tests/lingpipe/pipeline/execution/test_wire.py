"""Wire: on request, float32 values go to other devices as bfloat16."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.pipeline.execution.wire import Wire

VALUE = np.float32(1.001)


@pytest.mark.parametrize(('dtype', 'maker', 'value', 'expected'), [
    (None, 'CPU:0', VALUE, VALUE),
    (tf.bfloat16, 'CPU:1', VALUE, VALUE),               # It stays where it is.
    (tf.bfloat16, 'CPU:0', VALUE, np.float32(1.)),
    (tf.bfloat16, 'CPU:0', np.int32(257), np.int32(257)),
])
def test_what_arrives(dtype, maker, value, expected):
    arrived = Wire(dtype).carried(tf.constant(value), maker, 'CPU:1')
    assert arrived.numpy() == expected
    assert arrived.dtype == tf.as_dtype(expected.dtype)


def test_a_value_is_sent_once_to_all_its_readers_on_a_device():
    with tf.Graph().as_default() as graph:
        value, wire = tf.constant(VALUE), Wire(tf.bfloat16)
        first, second = (wire.carried(value, 'CPU:0', 'CPU:1') for _ in range(2))
        third = wire.carried(value, 'CPU:0', 'CPU:2')
    assert first is second and third is not first
    assert (sum(op.type == 'Cast' and op.device.endswith('CPU:0') for op in graph.get_operations())
            == 1)
