"""Placed: a function that runs on the device of its call, with all its ops.

TensorFlow inlines the calls of other functions, and then puts what enters a function, or branches
in it, on the devices that the inputs come from.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def placed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as one that is not inlined; its body carries no device unless it opens one."""
    made: Callable[..., Any] = tf.function(function, autograph=False, reduce_retracing=True,
                                           experimental_attributes={'_noinline': True})
    return made
