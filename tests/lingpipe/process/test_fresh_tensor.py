"""Fresh tensors: TensorFlow keeps none of them."""
from __future__ import annotations

import numpy as np
import tensorflow as tf

from lingpipe.process.fresh_tensor import fresh_int64


def share_memory(one: tf.Tensor, other: tf.Tensor) -> bool:
    return bool(np.shares_memory(np.asarray(memoryview(one)), np.asarray(memoryview(other))))


def test_a_number_is_a_new_tensor_each_time():
    assert fresh_int64(2**40 + 7).dtype == tf.int64
    assert int(fresh_int64(2**40 + 7)) == 2**40 + 7
    assert not share_memory(fresh_int64(2**40 + 7), fresh_int64(2**40 + 7))
    kept = [tf.constant(2**40 + 7, tf.int64) for _ in range(2)]   # why it is needed
    assert share_memory(*kept)
