"""Clock: an op that tells the time.

The obvious way is tf.timestamp, and it is the way where TensorFlow lets it run. With deterministic
ops (TF_DETERMINISTIC_OPS=1), which training on GPUs needs if it is to repeat its bits, TensorFlow
refuses it. Python's clock takes its place there, in the process of the devices; see
input/readers.py.
"""
from __future__ import annotations

import tensorflow as tf

from lingpipe.cluster import HOME
from lingpipe.input import readers
from lingpipe.pipeline.execution.reading_hosts import token_of


def now(host: str) -> tf.Tensor:
    """Adds an op that tells the time on a CPU; float64, in seconds since the epoch."""
    with tf.device(host):
        if not _is_refused():
            return tf.timestamp()
        moment, = tf.raw_ops.PyFunc(
            input=[tf.constant(readers.TIME), tf.constant(''), tf.constant(0, tf.int64)],
            token=token_of(host), Tout=[tf.float64])
        return tf.ensure_shape(moment, [])


def _is_refused() -> bool:
    """Whether TensorFlow refuses tf.timestamp in this process; it has no public name for that."""
    with tf.init_scope(), tf.device(None), tf.device(HOME):   # HOME names no task.
        try:
            tf.timestamp()
        except tf.errors.FailedPreconditionError:
            return True
        return False
