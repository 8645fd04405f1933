"""Emission layout: what one cell emits for every micro-batch, and where it is in the accumulators.

The layout follows from tracing the cell forward, before the accumulators are made. Scalars that are
added up form one vector, and values that are averaged form another:

    scalars    losses | weights | (sum, weight) of every metric
    averages   means | means of moments | variances of moments | the weight of every mean and moment

Moments are merged as in Chan, Golub and LeVeque (1983), eq. 2.1. Let n be the weight of what has
been merged so far, n' the weight of the next micro-batch, f = n' / (n + n') and
delta = mean' - mean. Then

    mean     <- mean + f delta
    variance <- variance + f (variance' - variance) + f (1 - f) delta^2

Unlike E[x^2] - E[x]^2, this loses no precision when the mean is large.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import tensorflow as tf

from lingpipe.layers.context import Emissions

# (layer path, name), as emitted.
Key: TypeAlias = tuple[str, str]
Shape: TypeAlias = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Merged:
    """What was emitted over a whole mini-batch, by (layer path, name).

    Every tensor is float32, except for states, which have dtypes of their own.
    """
    losses: dict[Key, tf.Tensor]
    weights: dict[Key, tf.Tensor]
    metrics: dict[Key, tuple[tf.Tensor, tf.Tensor]]
    moments: dict[Key, tuple[tf.Tensor, tf.Tensor]]
    means: dict[Key, tf.Tensor]
    states: dict[Key, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class EmissionLayout:
    """What a cell emits, in the order in which its layers emit it.

    Attributes:
      losses, weights, metrics: their keys.
      means: key -> shape.
      moments: key -> the shape of a mean, which is also that of its variance.
      states: key -> shape and dtype.
    """
    losses: tuple[Key, ...] = ()
    weights: tuple[Key, ...] = ()
    metrics: tuple[Key, ...] = ()
    means: Mapping[Key, Shape] = dataclasses.field(default_factory=dict)
    moments: Mapping[Key, Shape] = dataclasses.field(default_factory=dict)
    states: Mapping[Key, tf.TensorSpec] = dataclasses.field(default_factory=dict)

    @staticmethod
    def of(emitted: Emissions) -> EmissionLayout:
        """The layout of what a cell has emitted for one micro-batch."""
        return EmissionLayout(
            losses=tuple(emitted.losses),
            weights=tuple(emitted.weights),
            metrics=tuple(emitted.metrics),
            means={key: tuple(value.shape) for key, (value, _) in emitted.means.items()},
            moments={key: tuple(mean.shape) for key, (mean, _, _) in emitted.moments.items()},
            states={key: tf.TensorSpec(value.shape, value.dtype)
                    for key, value in emitted.states.items()})

    @property
    def keys(self) -> list[Key]:
        """All keys, of all kinds."""
        return [*self.losses, *self.weights, *self.metrics, *self.means, *self.moments,
                *self.states]

    def renamed(self, paths: Mapping[str, str]) -> EmissionLayout:
        """The layout of other layers that emit the same.

        Args:
          paths: path of a layer -> path of the other layer.
        """
        def new(key: Key) -> Key:
            return paths[key[0]], key[1]

        return EmissionLayout(
            losses=tuple(map(new, self.losses)),
            weights=tuple(map(new, self.weights)),
            metrics=tuple(map(new, self.metrics)),
            means={new(key): shape for key, shape in self.means.items()},
            moments={new(key): shape for key, shape in self.moments.items()},
            states={new(key): spec for key, spec in self.states.items()})

    @property
    def num_scalars(self) -> int:
        """The length of the vector of scalars."""
        return len(self.losses) + len(self.weights) + 2 * len(self.metrics)

    @property
    def num_averages(self) -> int:
        """The length of the vector of averages."""
        num_weights = len(self.means) + len(self.moments)
        return sum(self._sizes_of_firsts) + sum(self._sizes_of_moments) + num_weights

    @property
    def _sizes_of_moments(self) -> list[int]:
        return [math.prod(shape) for shape in self.moments.values()]

    @property
    def _sizes_of_firsts(self) -> list[int]:
        """The number of elements of each mean, including the means of moments."""
        return [*(math.prod(shape) for shape in self.means.values()), *self._sizes_of_moments]

    def scalars(self, emitted: Emissions) -> tf.Tensor:
        """Returns the scalars of one micro-batch, [num_scalars]."""
        metrics = [tensor for pair in emitted.metrics.values() for tensor in pair]
        return tf.stack([*emitted.losses.values(), *emitted.weights.values(), *metrics])

    def averages(self, emitted: Emissions) -> tf.Tensor:
        """Returns the means and moments of one micro-batch, [num_averages]."""
        means, moments = emitted.means.values(), emitted.moments.values()
        firsts = [*(value for value, _ in means), *(mean for mean, _, _ in moments)]
        variances = [variance for _, variance, _ in moments]
        weights = [*(weight for _, weight in means), *(weight for _, _, weight in moments)]
        return tf.concat([tf.reshape(t, [-1]) for t in (*firsts, *variances, *weights)], 0)

    def merged_averages(self, old: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
        """Merges two vectors of averages, [num_averages], by the formula above."""
        sizes = self._sizes_of_firsts
        num_means = sum(sizes) - sum(self._sizes_of_moments)
        parts = [sum(sizes), sum(self._sizes_of_moments), len(sizes)]
        old_firsts, old_variances, old_weights = tf.split(old, parts)
        new_firsts, new_variances, new_weights = tf.split(new, parts)

        weights = old_weights + new_weights
        f = tf.repeat(tf.math.divide_no_nan(new_weights, weights), sizes)
        delta = new_firsts - old_firsts
        of_variances = f[num_means:]
        variances = old_variances + of_variances * (new_variances - old_variances)
        variances += of_variances * (1.0 - of_variances) * tf.square(delta[num_means:])
        return tf.concat([old_firsts + f * delta, variances, weights], 0)

    def unpacked(self, scalars: tf.Tensor | None, averages: tf.Tensor | None,
                 states: Mapping[Key, tf.Tensor]) -> Merged:
        """Returns what was emitted, by key.

        Args:
          scalars: [num_scalars], or None if there are none.
          averages: [num_averages], or None if there are none.
          states: by key.
        """
        each_scalar = iter(tf.unstack(scalars) if scalars is not None else [])
        losses = {key: next(each_scalar) for key in self.losses}
        weights = {key: next(each_scalar) for key in self.weights}
        metrics = {key: (next(each_scalar), next(each_scalar)) for key in self.metrics}

        each_average = self._split(averages) if averages is not None else iter(())
        means = {key: next(each_average) for key in self.means}
        firsts = {key: next(each_average) for key in self.moments}
        moments = {key: (mean, next(each_average)) for key, mean in firsts.items()}
        return Merged(losses, weights, metrics, moments, means, dict(states))

    def _split(self, averages: tf.Tensor) -> Iterator[tf.Tensor]:
        """Iterates over means, means of moments and variances of moments, each in its shape."""
        shapes: Sequence[Shape] = [*self.means.values(), *self.moments.values(),
                                   *self.moments.values()]
        sizes = [math.prod(shape) for shape in shapes]
        parts = tf.split(averages[:sum(sizes)], sizes)
        return iter([tf.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)])
