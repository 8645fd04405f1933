"""Clock: an op that tells the time.

The obvious way is tf.timestamp, and it is the way where TensorFlow lets it run. With deterministic
ops (TF_DETERMINISTIC_OPS=1), which training on GPUs needs if it is to repeat its bits, TensorFlow
refuses it. Python's clock takes its place there. It can be read in this process only, so that
workers have none.
"""
from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from lingpipe.cluster import HOME
from lingpipe.cluster.client import is_on_worker


def now(host: str) -> tf.Tensor:
    """Adds an op that tells the time on a CPU; float64, in seconds since the epoch.

    Raises:
      ValueError: as `check` does.
    """
    check([host])
    with tf.device(host):
        if not _is_refused():
            return tf.timestamp()
        moment = tf.numpy_function(lambda: np.float64(time.time()), [], tf.float64)
        return tf.ensure_shape(moment, [])


def check(devices: Iterable[str]) -> None:
    """Raises ValueError if a device, a tf.device string, is that of a worker without a clock."""
    if not has_clocks(devices):
        raise ValueError(
            'tasks on workers cannot be timed where ops must be deterministic, since TensorFlow '
            'refuses to tell the time there; unset TF_DETERMINISTIC_OPS while you measure, or do '
            'not measure (--timeline, train.timeline_step, --mode=plan).')


def has_clocks(devices: Iterable[str]) -> bool:
    """Whether the time can be told beside all of the devices, tf.device strings."""
    return not (any(map(is_on_worker, devices)) and _is_refused())


def _is_refused() -> bool:
    """Whether TensorFlow refuses tf.timestamp in this process; it has no public name for that."""
    with tf.init_scope(), tf.device(None), tf.device(HOME):   # HOME names no task.
        try:
            tf.timestamp()
        except tf.errors.FailedPreconditionError:
            return True
        return False
