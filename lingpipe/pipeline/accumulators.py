"""Accumulators: what the micro-batches of a mini-batch add up on one device: gradients, losses, statistics.

They are variables that the tasks of a cell add to in place, in the order of micro-batches: nothing that grows with the
number of weights crosses the graph of the step, and a gradient needs no second buffer.

With sum_groups, the sums of a group of micro-batches are set aside in `_before` before those of the next begin, and the last group's join
them: the additions are then those of as many replicas.

Moments are merged as in Chan, Golub and LeVeque (1983), eq. 2.1, for groups of equal size: with n groups merged before,
f = 1 / (n + 1) and delta = mean' - mean,

    mean <- mean + f delta,     variance <- variance + f (variance' - variance) + f (1 - f) delta^2

which, unlike E[x^2] - E[x]^2, loses nothing when the mean is large.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.context import Emissions
from lingpipe.layer import Weight
from lingpipe.learner import accumulator_dtype

Key = tuple[str, str]  # (layer path, name), as emitted


@dataclasses.dataclass
class Merged:
    """What was emitted over a whole mini-batch, by (layer path, name); every tensor float32."""
    losses: dict[Key, tf.Tensor]
    weights: dict[Key, tf.Tensor]
    metrics: dict[Key, tuple[tf.Tensor, tf.Tensor]]
    moments: dict[Key, tuple[tf.Tensor, tf.Tensor]]
    means: dict[Key, tf.Tensor]


class Accumulators:
    """The accumulators of one cell."""

    def __init__(self, device: str, trained: Iterable[Weight], num_micro_batches: int = 1, num_replicas: int = 1, num_groups: int = 1):
        """
        Args:
          device: of the variables.
          trained: the weights (as used, not as owned) whose gradients are summed, in their dtype, but float32 at least.
          num_micro_batches, num_replicas: M and R.
          num_groups: PipelineParams.sum_groups.
        """
        self._device, self._num_groups = device, num_groups
        self._num_parts = num_replicas * num_groups   # each summed by itself, of so many micro-batches:
        self._part = num_micro_batches // num_groups
        with tf.device(device):
            self.gradients = {w.path: tf.Variable(tf.zeros(w.shape, accumulator_dtype(w.dtype)), trainable=False, name='gradient')
                              for w in trained}
        self._emitted = Emissions()  # Only its keys and shapes are used after tracing.
        self._scalars: tf.Variable | None = None
        self._running: tf.Variable | None = None  # means, then means of moments, then variances of moments
        self._before: dict[int, tf.Variable] = {}  # by the id of a variable, the sums of the groups before
        for variable in self.gradients.values():
            self._set_aside(variable, 'gradient_before')

    # In the tasks.

    def add_gradient(self, path: str, gradient: tf.Tensor) -> tf.Operation:
        """The op that adds a micro-batch's gradient."""
        accumulator = self.gradients[path]
        return tf.raw_ops.AssignAddVariableOp(resource=accumulator.handle, value=tf.cast(gradient, accumulator.dtype))

    def add_emissions(self, emitted: Emissions, micro_batch: tf.Tensor) -> list[tf.Operation]:
        """The ops that add a micro-batch's emissions; micro_batch is its index among all replicas', int scalar.

        It is traced once for every shape of a mini-batch; what is emitted, and its shapes, are the same in all.
        """
        self._emitted = emitted
        updates = []
        scalars = [*emitted.losses.values(), *emitted.weights.values(), *[t for pair in emitted.metrics.values() for t in pair]]
        if scalars:
            if self._scalars is None:
                self._scalars = self._variable([len(scalars)], 'emitted_scalars')
            updates.append(tf.raw_ops.AssignAddVariableOp(resource=self._scalars.handle, value=tf.stack(scalars)))
        first = list(emitted.means.values()) + [mean for mean, _ in emitted.moments.values()]
        if first:
            firsts = tf.concat([tf.reshape(t, [-1]) for t in first], 0)
            variances = tf.concat([tf.reshape(v, [-1]) for _, v in emitted.moments.values()] or [tf.zeros([0])], 0)
            num_means = sum(t.shape.num_elements() for t in emitted.means.values())
            if self._running is None:
                self._running = self._variable([firsts.shape[0] + variances.shape[0]], 'emitted_means')
            old = tf.raw_ops.ReadVariableOp(resource=self._running.handle, dtype=tf.float32)
            if self._num_parts > 1:  # its index among those that are summed with it
                micro_batch = micro_batch // (self._num_parts * self._part) * self._part + micro_batch % self._part
            f = 1.0 / (tf.cast(micro_batch, tf.float32) + 1.0)
            new = _merged_moments(old, tf.concat([firsts, variances], 0), f, num_means, variances.shape[0])
            updates.append(tf.raw_ops.AssignVariableOp(resource=self._running.handle, value=new))
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
                total = self.merge(variable, [tf.raw_ops.ReadVariableOp(resource=before.handle, dtype=before.dtype), value], group - 1)
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
        like: list[Any] = [*emitted.means.values(), *[m for m, _ in emitted.moments.values()], *[v for _, v in emitted.moments.values()]]
        parts: Iterator[tf.Tensor] = iter([])
        if self._running is not None:
            split = tf.split(self._running.read_value(), [t.shape.num_elements() for t in like])
            parts = iter([tf.reshape(part, t.shape) for part, t in zip(split, like, strict=True)])
        means = {key: next(parts) for key in emitted.means}
        first = {key: next(parts) for key in emitted.moments}
        return Merged(losses, weights, metrics, {key: (mean, next(parts)) for key, mean in first.items()}, means)

    def variables(self) -> list[tf.Variable]:
        """All that tasks add to, once they are traced."""
        return [variable for variable in (*self.gradients.values(), self._scalars, self._running) if variable is not None]

    def merge(self, variable: tf.Variable, values: Sequence[tf.Tensor], num_before: int = 1) -> tf.Tensor:
        """What all replicas have added to `variable`, one of `variables`, from the values of each, of equally many micro-batches.

        The first of the values may be that of num_before replicas.
        """
        total = values[0]
        if variable is not self._running:
            for value in values[1:]:
                total = total + value
            return total
        num_means = sum(t.shape.num_elements() for t in self._emitted.means.values())
        num_variances = sum(v.shape.num_elements() for _, v in self._emitted.moments.values())
        for n, value in enumerate(values[1:], num_before):
            total = _merged_moments(total, value, 1.0 / (n + 1.0), num_means, num_variances)
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


def _merged_moments(old: tf.Tensor, new: tf.Tensor, f: Any, num_means: int, num_variances: int) -> tf.Tensor:
    """The formula of the file's head: [means, means of moments, variances of moments], of which `new` has the part f of all groups."""
    num_firsts = old.shape[0] - num_variances
    delta = new[:num_firsts] - old[:num_firsts]
    variances, old_variances = new[num_firsts:], old[num_firsts:]
    return tf.concat([old[:num_firsts] + f * delta,
                      old_variances + f * (variances - old_variances) + f * (1.0 - f) * tf.square(delta[num_means:])], 0)
