"""Accumulators: what the micro-batches of a mini-batch add up on one device: gradients, losses, statistics.

They are variables that the tasks of a cell add to in place, in the order of micro-batches: nothing that grows with the
number of weights crosses the graph of the step, and a gradient needs no second buffer.

With sum_groups, the sums of a group of micro-batches are set aside in `_before` before those of the next begin, and the last group's join
them: the additions are then those of as many replicas.

Moments are merged as in Chan, Golub and LeVeque (1983), eq. 2.1: with groups of the weight n merged before, and another of the
weight n', f = n' / (n + n') and delta = mean' - mean,

    mean <- mean + f delta,     variance <- variance + f (variance' - variance) + f (1 - f) delta^2

which, unlike E[x^2] - E[x]^2, loses nothing when the mean is large.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.layers.base import Weight
from lingpipe.layers.context import Emissions
from lingpipe.learning.learner import accumulator_dtype

Key = tuple[str, str]  # (layer path, name), as emitted


@dataclasses.dataclass
class Merged:
    """What was emitted over a whole mini-batch, by (layer path, name); every tensor float32, but states have their own dtypes."""
    losses: dict[Key, tf.Tensor]
    weights: dict[Key, tf.Tensor]
    metrics: dict[Key, tuple[tf.Tensor, tf.Tensor]]
    moments: dict[Key, tuple[tf.Tensor, tf.Tensor]]
    means: dict[Key, tf.Tensor]
    states: dict[Key, tf.Tensor]


class Accumulators:
    """The accumulators of one cell."""

    def __init__(self, device: str, trained: Iterable[Weight], num_micro_batches: int = 1, num_groups: int = 1):
        """
        Args:
          device: of the variables.
          trained: the weights (as used, not as owned) whose gradients are summed, in their dtype, but float32 at least.
          num_micro_batches: M.
          num_groups: PipelineParams.sum_groups.
        """
        self._device, self._num_groups = device, num_groups
        self._part = num_micro_batches // num_groups
        with tf.device(device):
            self.gradients = {w.path: tf.Variable(tf.zeros(w.shape, accumulator_dtype(w.dtype)), trainable=False, name='gradient')
                              for w in trained}
        self._emitted = Emissions()  # Only its keys and shapes are used after tracing.
        self._scalars: tf.Variable | None = None
        self._running: tf.Variable | None = None  # as _Layout says
        self._states: dict[Key, tf.Variable] = {}
        self._before: dict[int, tf.Variable] = {}  # by the id of a variable, the sums of the groups before
        for variable in self.gradients.values():
            self._set_aside(variable, 'gradient_before')

    # In the tasks.

    def add_gradient(self, path: str, gradient: tf.Tensor) -> tf.Operation:
        """The op that adds a micro-batch's gradient."""
        accumulator = self.gradients[path]
        return tf.raw_ops.AssignAddVariableOp(resource=accumulator.handle, value=tf.cast(gradient, accumulator.dtype))

    def add_emissions(self, emitted: Emissions) -> list[tf.Operation]:
        """The ops that add a micro-batch's emissions.

        It is traced once for every shape of a mini-batch; what is emitted, and its shapes, are the same in all.
        """
        self._emitted = emitted
        updates = []
        scalars = [*emitted.losses.values(), *emitted.weights.values(), *[t for pair in emitted.metrics.values() for t in pair]]
        if scalars:
            if self._scalars is None:
                self._scalars = self._variable([len(scalars)], 'emitted_scalars')
            updates.append(tf.raw_ops.AssignAddVariableOp(resource=self._scalars.handle, value=tf.stack(scalars)))
        layout = self._layout()
        if layout.num_values:
            firsts = [*[value for value, _ in emitted.means.values()], *[mean for mean, _, _ in emitted.moments.values()]]
            variances = [variance for _, variance, _ in emitted.moments.values()]
            weights = [*[weight for _, weight in emitted.means.values()], *[weight for _, _, weight in emitted.moments.values()]]
            new = tf.concat([tf.reshape(t, [-1]) for t in (*firsts, *variances, *weights)], 0)
            if self._running is None:
                self._running = self._variable([layout.num_values], 'emitted_means')
            old = tf.raw_ops.ReadVariableOp(resource=self._running.handle, dtype=tf.float32)
            updates.append(tf.raw_ops.AssignVariableOp(resource=self._running.handle, value=layout.merged(old, new)))
        for i, (key, value) in enumerate(emitted.states.items()):
            if key not in self._states:
                with tf.init_scope(), tf.device(self._device):
                    self._states[key] = tf.Variable(tf.zeros(value.shape, value.dtype), trainable=False, name=f'emitted_state_{i}')
            updates.append(tf.raw_ops.AssignVariableOp(resource=self._states[key].handle, value=value))
        return updates

    def end_of_group(self, kind: str, is_fused: bool, micro_batch: int) -> list[tf.Operation]:
        """The ops that must run between a task of the cell and its next, if with it a group's sums are complete.

        Args:
          kind: of the task, which adds emissions if it is 'F' or fused, and gradients if it is 'B'.
          is_fused: whether it is both.
          micro_batch: its index in the mini-batch.
        """
        group, rest = divmod(micro_batch + 1, self._part)
        if self._num_groups == 1 or rest:
            return []
        emitted = [variable for variable in (self._scalars, self._running) if variable is not None and (kind == 'F' or is_fused)]
        done = []
        for variable in [*emitted, *(self.gradients.values() if kind == 'B' else [])]:
            before = self._before[id(variable)]
            total = value = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
            if group > 1:
                total = self.merge(variable, [tf.raw_ops.ReadVariableOp(resource=before.handle, dtype=before.dtype), value])
            if group == self._num_groups:
                done.append(tf.raw_ops.AssignVariableOp(resource=variable.handle, value=total))
                continue
            with tf.control_dependencies([tf.raw_ops.AssignVariableOp(resource=before.handle, value=total)]):
                done.append(tf.raw_ops.AssignVariableOp(resource=variable.handle, value=tf.raw_ops.ZerosLike(x=value)))
        return done

    # After the tasks.

    def merged(self) -> Merged:
        """Everything emitted since the last reset."""
        emitted = self._emitted
        scalars = iter(tf.unstack(self._scalars.read_value()) if self._scalars is not None else [])
        losses = {key: next(scalars) for key in emitted.losses}
        weights = {key: next(scalars) for key in emitted.weights}
        metrics = {key: (next(scalars), next(scalars)) for key in emitted.metrics}
        like: list[Any] = [*[value for value, _ in emitted.means.values()], *[m for m, _, _ in emitted.moments.values()],
                           *[v for _, v, _ in emitted.moments.values()]]
        parts: Iterator[tf.Tensor] = iter([])
        if self._running is not None:
            sizes = [t.shape.num_elements() for t in like]
            split = tf.split(self._running.read_value()[:sum(sizes)], sizes)
            parts = iter([tf.reshape(part, t.shape) for part, t in zip(split, like, strict=True)])
        means = {key: next(parts) for key in emitted.means}
        first = {key: next(parts) for key in emitted.moments}
        moments = {key: (mean, next(parts)) for key, mean in first.items()}
        return Merged(losses, weights, metrics, moments, means, {key: self._states[key].read_value() for key in emitted.states})

    def _layout(self) -> _Layout:
        emitted = self._emitted
        return _Layout(tuple(value.shape.num_elements() for value, _ in emitted.means.values()),
                       tuple(mean.shape.num_elements() for mean, _, _ in emitted.moments.values()))

    def variables(self) -> list[tf.Variable]:
        """All that tasks add to, once they are traced."""
        scalars_and_means = [variable for variable in (self._scalars, self._running) if variable is not None]
        return [*self.gradients.values(), *scalars_and_means, *self._states.values()]

    def merge(self, variable: tf.Variable, values: Sequence[tf.Tensor]) -> tf.Tensor:
        """What all replicas have added to `variable`, one of `variables`, from the values of each."""
        total = values[0]
        if any(variable is state for state in self._states.values()):
            return total
        for value in values[1:]:
            total = self._layout().merged(total, value) if variable is self._running else total + value
        return total

    def reset(self) -> tf.Tensor:
        """Sets everything to zero, one variable after the other, and returns a tensor that is there when it is done."""
        done = tf.constant(0)
        for variable in self.variables():
            with tf.control_dependencies([done]):
                # Zeros like a value and not of a shape: TensorFlow would fold those into constants, one for every weight.
                zeros = tf.raw_ops.ZerosLike(x=tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype))
                zeroed = tf.raw_ops.AssignVariableOp(resource=variable.handle, value=zeros)
            with tf.control_dependencies([zeroed]):
                done = tf.constant(0)
        return done

    def _variable(self, shape: list[int], name: str) -> tf.Variable:
        """`name` must be the only one of its kind in a trace: wrap_function keeps variables by name."""
        with tf.init_scope(), tf.device(self._device):
            made = tf.Variable(tf.zeros(shape), trainable=False, name=name)
            self._set_aside(made, f'{name}_before')
            return made

    def _set_aside(self, variable: tf.Variable, name: str) -> None:
        if self._num_groups > 1:
            with tf.device(self._device):
                self._before[id(variable)] = tf.Variable(tf.zeros_like(variable), trainable=False, name=name)


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Where what is merged lies in one vector: means, means of moments, variances of moments, the weight of each.

    Attributes:
      sizes_of_means, sizes_of_moments: the number of elements of each.
    """
    sizes_of_means: tuple[int, ...]
    sizes_of_moments: tuple[int, ...]

    @property
    def num_values(self) -> int:
        """The length of the vector."""
        num_weights = len(self.sizes_of_means) + len(self.sizes_of_moments)
        return sum(self.sizes_of_means) + 2 * sum(self.sizes_of_moments) + num_weights

    def merged(self, old: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
        """The formula of the file's head; both are such vectors."""
        sizes = [*self.sizes_of_means, *self.sizes_of_moments]
        num_means, num_firsts, num_variances = sum(self.sizes_of_means), sum(sizes), sum(self.sizes_of_moments)
        parts = [num_firsts, num_variances, len(sizes)]
        old_firsts, old_variances, old_weights = tf.split(old, parts)
        new_firsts, new_variances, new_weights = tf.split(new, parts)

        weights = old_weights + new_weights
        f = tf.repeat(tf.math.divide_no_nan(new_weights, weights), sizes)
        delta = new_firsts - old_firsts
        of_variances = f[num_means:]
        variances = old_variances + of_variances * (new_variances - old_variances)
        variances += of_variances * (1.0 - of_variances) * tf.square(delta[num_means:])
        return tf.concat([old_firsts + f * delta, variances, weights], 0)
