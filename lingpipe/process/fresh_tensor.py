"""Fresh tensor: a number as a tensor that TensorFlow forgets.

For every Python number that becomes a tensor, TensorFlow keeps the tensor for good, to give it out
again. A number that no call sees twice, as that of a step, then costs 0.7 KB of memory each time. A
number of NumPy's is not kept.
"""
from __future__ import annotations

import numpy as np
import tensorflow as tf


def fresh_int64(number: int) -> tf.Tensor:
    """Returns a number as an int64 scalar."""
    return tf.constant(np.int64(number))
