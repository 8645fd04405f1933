"""Accumulators: what the micro-batches of a mini-batch add up on one device.

They are variables for gradients, losses and statistics. The tasks of a cell add to them in place,
in the order of micro-batches. So nothing that grows with the number of weights crosses the graph of
the step, and a gradient needs no second buffer.

With sum_groups, the sums of a group of micro-batches are set aside before those of the next group
begin, and the sums of the last group join them. The additions are then those of as many replicas.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from lingpipe.layers.base import Weight
from lingpipe.layers.context import Emissions
from lingpipe.learning.learner import accumulator_dtype
from lingpipe.pipeline.execution.emission_layout import EmissionLayout, Key, Merged


@dataclasses.dataclass(frozen=True, eq=False)
class Accumulator:
    """One sum.

    Attributes:
      variable: what tasks add to.
      merge: makes one sum out of two, those of earlier micro-batches first.
      before: holds the sum of the groups before the present one, if there are several groups.
    """
    variable: tf.Variable
    merge: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    before: tf.Variable | None = None

    def merged(self, values: Sequence[tf.Tensor]) -> tf.Tensor:
        """The sum of one or more sums, such as those of all replicas."""
        total, *others = values
        for value in others:
            total = self.merge(total, value)
        return total


class Accumulators:
    """The accumulators of one cell.

    Attributes:
      layout: of what the cell emits.
      gradients: path -> the sum of the gradients of a trained weight, as used, not as owned.
    """

    def __init__(self, device: str, trained: Iterable[Weight], layout: EmissionLayout,
                 num_micro_batches: int = 1, num_groups: int = 1):
        """Makes all variables.

        Args:
          device: of the variables.
          trained: the weights (as used, not as owned) whose gradients are summed, in their dtype,
            but float32 at least.
          layout: of what the cell emits.
          num_micro_batches: M.
          num_groups: PipelineParams.sum_groups.
        """
        self.layout = layout
        self._num_groups = num_groups
        self._group_size = num_micro_batches // num_groups
        with tf.device(device):
            self._gradients = {
                weight.path: self._summed(
                    tf.TensorSpec(weight.shape, accumulator_dtype(weight.dtype)), 'gradient', _add)
                for weight in trained}
            self._scalars = self._averages = None
            if layout.num_scalars:
                self._scalars = self._summed(
                    tf.TensorSpec([layout.num_scalars]), 'emitted_scalars', _add)
            if layout.num_averages:
                self._averages = self._summed(
                    tf.TensorSpec([layout.num_averages]), 'emitted_means',
                    layout.merged_averages)
            self._states = {
                key: Accumulator(_variable(spec, f'emitted_state_{i}'), merge=_first)
                for i, (key, spec) in enumerate(layout.states.items())}
        self.gradients = {path: one.variable for path, one in self._gradients.items()}

    def _summed(self, spec: tf.TensorSpec, name: str,
                merge: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]) -> Accumulator:
        before = _variable(spec, f'{name}_before') if self._num_groups > 1 else None
        return Accumulator(_variable(spec, name), merge, before)

    # In the tasks.

    def add_gradient(self, path: str, gradient: tf.Tensor) -> tf.Operation:
        """The op that adds a micro-batch's gradient."""
        variable = self.gradients[path]
        return tf.raw_ops.AssignAddVariableOp(
            resource=variable.handle, value=tf.cast(gradient, variable.dtype))

    def add_emissions(self, emitted: Emissions) -> list[tf.Operation]:
        """The ops that add a micro-batch's emissions, which are those of the layout."""
        updates = []
        if self._scalars is not None:
            updates.append(tf.raw_ops.AssignAddVariableOp(
                resource=self._scalars.variable.handle, value=self.layout.scalars(emitted)))
        if self._averages is not None:
            new = self.layout.averages(emitted)
            merged = self.layout.merged_averages(_read(self._averages.variable), new)
            updates.append(_assign(self._averages.variable, merged))
        for key, value in emitted.states.items():
            updates.append(_assign(self._states[key].variable, value))
        return updates

    def end_of_group(self, kind: str, is_fused: bool, micro_batch: int) -> list[tf.Operation]:
        """The ops that must run between a task of the cell and its next, at the end of a group.

        There are none unless the task completes the sums of a group.

        Args:
          kind: of the task, which adds emissions if it is 'F' or fused, and gradients if it is 'B'.
          is_fused: whether it is both.
          micro_batch: its index in the mini-batch.
        """
        group, rest = divmod(micro_batch + 1, self._group_size)
        if self._num_groups == 1 or rest:
            return []
        complete = []
        if kind == 'F' or is_fused:
            complete += [one for one in (self._scalars, self._averages) if one is not None]
        if kind == 'B':
            complete += self._gradients.values()
        return [self._end_of_group(one, group) for one in complete]

    def _end_of_group(self, accumulator: Accumulator, group: int) -> tf.Operation:
        """Sets a sum aside and begins anew or, after the last group, takes all groups together."""
        variable, before = accumulator.variable, accumulator.before
        assert before is not None
        total = value = _read(variable)
        if group > 1:
            total = accumulator.merged([_read(before), value])
        if group == self._num_groups:
            return _assign(variable, total)
        with tf.control_dependencies([_assign(before, total)]):
            return _assign(variable, tf.raw_ops.ZerosLike(x=value))

    # After the tasks.

    def merged(self) -> Merged:
        """Everything emitted since the last reset."""
        scalars = None if self._scalars is None else self._scalars.variable.read_value()
        averages = None if self._averages is None else self._averages.variable.read_value()
        states: dict[Key, tf.Tensor] = {
            key: one.variable.read_value() for key, one in self._states.items()}
        return self.layout.unpacked(scalars, averages, states)

    def all(self) -> list[Accumulator]:
        """Every sum, those of gradients first."""
        emitted = [one for one in (self._scalars, self._averages) if one is not None]
        return [*self._gradients.values(), *emitted, *self._states.values()]

    def variables(self) -> list[tf.Variable]:
        """The variables that tasks add to, in the order of `all`."""
        return [one.variable for one in self.all()]

    def reset(self) -> tf.Tensor:
        """Sets all sums to zero, one after the other; the tensor is there when it is done."""
        done = tf.constant(0)
        for variable in self.variables():
            with tf.control_dependencies([done]):
                # Zeros like a value and not of a shape: TensorFlow would fold those into constants,
                # one for every weight.
                zeroed = _assign(variable, tf.raw_ops.ZerosLike(x=_read(variable)))
            with tf.control_dependencies([zeroed]):
                done = tf.constant(0)
        return done


def _variable(spec: tf.TensorSpec, name: str) -> tf.Variable:
    return tf.Variable(tf.zeros(spec.shape, spec.dtype), trainable=False, name=name)


def _read(variable: tf.Variable) -> tf.Tensor:
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def _assign(variable: tf.Variable, value: tf.Tensor) -> tf.Operation:
    return tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)


def _add(old: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
    return old + new


def _first(old: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
    """A state is the same in every micro-batch and every replica."""
    return old
