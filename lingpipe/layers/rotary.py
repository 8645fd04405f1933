"""Rotary positions (Su et al., 2021, RoFormer, arXiv:2104.09864): queries and keys are rotated.

Channels c and c + h/2 of a head are a pair, a point in a plane, and position p rotates it by the
angle p / base^(2 c / h). The product of a query and a key then depends on how far apart they are,
not on where they stand. (The paper pairs neighbours, which is the same up to the order of the
channels; halves need no shuffling.)

Shapes: T time, h channels of a head.
"""
from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

from lingpipe.hyperparams import Params, field
from lingpipe.process.graph_lifetime import custom_gradient


class RotaryScaling(Params):
    """Slower rotations, for longer texts than a model learned at first, as LLaMA 3.1 has them.

    A channel that turns fewer than `low` times in `length` positions turns `factor` times slower;
    one that turns more than `high` times turns as before; between them, the speed is interpolated.
    With `is_linear`, all channels turn `factor` times slower, as in Gemma 3 (Chen et al., 2023,
    arXiv:2306.15595).
    """
    factor: float = field(1., 'How many times slower the slow channels turn; 1: none does.',
                          least=1)
    low: float = field(1., 'Channels with fewer turns are slow ones.', above=0)
    high: float = field(4., 'Channels with more turns stay as they are.', above=0)
    length: int = field(8192, 'Positions of the texts that the model learned at first.', least=1)
    is_linear: bool = field(False, 'Whether all channels are slow ones.')

    def check(self) -> None:
        """Raises ValueError unless low is below high."""
        if self.low >= self.high:
            raise ValueError(f'low={self.low} is not below high={self.high}, but speeds are '
                             'interpolated between the two; write low=1 and high=4.')

    def scaled(self, period: float) -> float:
        """The period of a channel; the argument and the result are in positions per radian."""
        if self.factor == 1 or self.is_linear:
            return period * self.factor
        num_turns = self.length / (2 * math.pi * period)
        share = min(max((num_turns - self.low) / (self.high - self.low), 0.), 1.)
        return period / ((1 - share) / self.factor + share)


def rotations(positions: tf.Tensor, head_dim: int, base: float,
              scaling: RotaryScaling | None = None) -> tuple[tf.Tensor, tf.Tensor]:
    """The cosines and sines of the angles of positions [...], float32 [..., h/2]."""
    periods = [base ** (2 * c / head_dim) for c in range(head_dim // 2)]
    if scaling is not None:
        periods = [scaling.scaled(period) for period in periods]
    angles = tf.cast(positions, tf.float32)[..., tf.newaxis] / tf.constant(periods)
    return tf.cos(angles), tf.sin(angles)


def rotate(x: tf.Tensor, cos: tf.Tensor, sin: tf.Tensor) -> tf.Tensor:
    """Rotates x [..., h] by angles whose cosines and sines broadcast to [..., h/2].

    It is computed in float32; the result has the dtype of x. The gradient is the rotation back,
    which reads no activation.
    """
    @custom_gradient
    def rotated(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        return _rotated(x, cos, sin), lambda dy: _rotated(dy, cos, -sin)

    return rotated(x)


def _rotated(x: tf.Tensor, cos: tf.Tensor, sin: tf.Tensor) -> tf.Tensor:
    a, b = tf.split(tf.cast(x, tf.float32), 2, -1)
    return tf.cast(tf.concat([a * cos - b * sin, a * sin + b * cos], -1), x.dtype)


def rotation_flops(num_values: int, num_angles: int) -> float:
    """FLOPs of rotating `num_values` numbers by `num_angles` angles, which are computed, too."""
    return 3. * num_values + 3. * num_angles
