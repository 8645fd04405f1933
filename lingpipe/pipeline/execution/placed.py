"""Placed: functions that run with all their ops on the device of their call.

TensorFlow inlines calls of ordinary functions. It then places what enters such a function, and its
branches, on the devices that the inputs come from.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.process.graph_lifetime import wrap_function


def placed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes the function one that is never inlined; its ops have a device only if it opens one."""
    never_inlined: Callable[..., Any] = tf.function(
        function, autograph=False, reduce_retracing=True,
        experimental_attributes={'_noinline': True})
    return never_inlined


def call_on(device: str, function: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Calls function(*args) on a device; the results stay there.

    While a graph is traced, the call becomes part of it. Eagerly, a graph is made for the call,
    since TensorFlow cannot call a function on a worker without one.

    Args:
      device: a tf.device string.
      function: a tf.function, or one that `placed` made.
      args: nested tensors.
    """
    if not tf.executing_eagerly():
        with tf.device(device):
            return function(*args)

    def body(*flat: tf.Tensor) -> Any:
        with tf.device(device):
            return function(*tf.nest.pack_sequence_as(list(args), list(flat)))

    flat = tf.nest.flatten(list(args))
    alone = wrap_function(body, [tf.TensorSpec(t.shape, t.dtype) for t in flat])
    with tf.device(None):
        return alone(*flat)
