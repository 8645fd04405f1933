"""Normalize: makes the numbers that a network takes from the bytes that an input gives.

It runs on the network's first device.
"""
from __future__ import annotations

from typing import Literal

import numpy as np
import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.cost import Cost
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.static_shapes import num_elements, static_shape
from lingpipe.wording.counts import counted


class Normalize(Layer):
    """(x / 255 - mean) / std, by channel: x uint8 [b, h, w, C] -> [b, h, w, C] of `dtype`.

    It stands before a network, and replaces the value `image` of the mini-batch. A pipeline sends
    the bytes to its device, a quarter of float32's. The defaults are the mean and standard
    deviation of ImageNet's pixels, red, green, blue.
    """

    class Params(Layer.Params):
        """Mean and standard deviation, in parts of white."""
        reads: dict[str, str] = field({'x': 'image'})
        writes: str | dict[str, str] = field('image')
        mean: tuple[float, ...] = field((0.485, 0.456, 0.406), 'Mean of each channel, or one for '
                                                               'all; 1 is white.')
        std: tuple[float, ...] = field((0.229, 0.224, 0.225), 'Standard deviation of each channel, '
                                                              'or one for all.', above=0)
        dtype: Literal['float32', 'bfloat16'] = field('float32', 'Dtype of activations from here '
                                                                 'on.')

        def check(self) -> None:
            """Raises ValueError for a mean or standard deviation of no channel."""
            for name in ('mean', 'std'):
                if not getattr(self, name):
                    raise ValueError(f'{name}=[] is of no channel; give one number for each '
                                     'channel, or one for all.')

    params: Params

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor) -> tf.Tensor:
        """[b, h, w, C] -> [b, h, w, C], computed in float32.

        Raises:
          ValueError: the channels are not those of mean and std.
        """
        p = self.params
        self._check(x)
        scale = 1 / (255 * np.array(p.std))
        offset = -np.array(p.mean) / np.array(p.std)
        y = tf.cast(x, tf.float32) * scale.astype(np.float32) + offset.astype(np.float32)
        return tf.cast(y, p.dtype)

    def cost(self, x: tf.TensorSpec) -> Cost:
        """2 operations a number."""
        self._check(x)
        shape = static_shape(x, self.path, 'x')
        return Cost(2. * num_elements(x), 0, tf.TensorSpec(shape, self.params.dtype))

    def _check(self, x: tf.Tensor | tf.TensorSpec) -> None:
        """Raises ValueError if the channels are not those of mean and std."""
        for name in ('mean', 'std'):
            length = len(self.params[name])
            if length not in (1, x.shape[-1]):
                raise ValueError(f'{self.path}: {name} has {counted(length, "number")}, and x is '
                                 f'{x.shape}; give one for each of its channels, or one '
                                 'for all.')
