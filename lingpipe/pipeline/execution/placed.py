"""Placed: a function that runs on the device of its call, with all its ops; and calls of such functions.

TensorFlow inlines the calls of other functions, and then puts what enters a function, or branches
in it, on the devices that the inputs come from.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def placed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as one that is not inlined; its body carries no device unless it opens one."""
    made: Callable[..., Any] = tf.function(function, autograph=False, reduce_retracing=True,
                                           experimental_attributes={'_noinline': True})
    return made


def call_on(device: str, function: Callable[..., Any], args: Sequence[Any]) -> Any:
    """function(*args) on a device: a call in the graph that is being traced or, eagerly, a graph of its own.

    Without a graph TensorFlow calls no function on a worker. Results stay on the device.

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
    alone = tf.compat.v1.wrap_function(body, [tf.TensorSpec(t.shape, t.dtype) for t in flat])
    with tf.device(None):
        return alone(*flat)
