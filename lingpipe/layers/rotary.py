"""Rotary positions (Su et al., 2021, RoFormer, arXiv:2104.09864): queries and keys are rotated.

Channels c and c + h/2 of a head are a pair, a point in a plane, and position p rotates it by the
angle p / base^(2 c / h). The product of a query and a key then depends on how far apart they are,
not on where they stand. (The paper pairs neighbours, which is the same up to the order of the
channels; halves need no shuffling.)

Shapes: T time, h channels of a head.
"""
from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf


def rotations(positions: tf.Tensor, head_dim: int, base: float) -> tuple[tf.Tensor, tf.Tensor]:
    """The cosines and sines of the angles of positions [...], float32 [..., h/2]."""
    periods = tf.constant([base ** (2 * c / head_dim) for c in range(head_dim // 2)])
    angles = tf.cast(positions, tf.float32)[..., tf.newaxis] / periods
    return tf.cos(angles), tf.sin(angles)


def rotate(x: tf.Tensor, cos: tf.Tensor, sin: tf.Tensor) -> tf.Tensor:
    """Rotates x [..., h] by angles whose cosines and sines broadcast to [..., h/2].

    It is computed in float32; the result has the dtype of x. The gradient is the rotation back,
    which reads no activation.
    """
    @tf.custom_gradient
    def rotated(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        return _rotated(x, cos, sin), lambda dy: _rotated(dy, cos, -sin)

    return rotated(x)


def _rotated(x: tf.Tensor, cos: tf.Tensor, sin: tf.Tensor) -> tf.Tensor:
    a, b = tf.split(tf.cast(x, tf.float32), 2, -1)
    return tf.cast(tf.concat([a * cos - b * sin, a * sin + b * cos], -1), x.dtype)


def rotation_flops(num_values: int, num_angles: int) -> float:
    """FLOPs of rotating `num_values` numbers by `num_angles` angles, which are computed, too."""
    return 3. * num_values + 3. * num_angles
