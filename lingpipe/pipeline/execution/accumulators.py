"""Accumulators: the sums over the micro-batches of a mini-batch, on one device.

They are variables for gradients, losses and statistics. The tasks of a cell add to them in place,
in the order of micro-batches. So no tensor of a weight's size passes through the graph of the step,
and a gradient needs no second buffer.

A gradient that is kept as rows (Element.gradient_rows) has a place for the rows of each micro-batch
of all replicas. The other places are zeros, so that replicas are summed as for other gradients.

With sum_groups, each group of micro-batches is summed from zero, and its sums are then added to
those of the groups before. The order of additions is then the same as with that number of replicas.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import tensorflow as tf

from lingpipe.layers.context import Emissions
from lingpipe.layers.weight import Weight
from lingpipe.learning.averages import accumulator_dtype
from lingpipe.learning.gradient import Gradient
from lingpipe.pipeline.execution.emission_layout import EmissionLayout, Key, Merged
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.pipeline.planning.dataflow import Element


@dataclasses.dataclass(frozen=True, eq=False)
class Accumulator:
    """One sum.

    Attributes:
      variable: the one that tasks add to.
      merge: combines two sums into one; the sum of the earlier micro-batches comes first.
      before: holds the sum of all earlier groups; None if nothing is summed by groups.
    """
    variable: tf.Variable
    merge: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    before: tf.Variable | None = None

    def merged(self, values: Sequence[tf.Tensor]) -> tf.Tensor:
        """Combines one or more sums into one, such as those of all replicas."""
        total, *others = values
        for value in others:
            total = self.merge(total, value)
        return total


class Accumulators:
    """The accumulators of one cell.

    Attributes:
      layout: the layout of what the cell emits.
      gradients: path of a trained weight, as used and not as owned -> the sum of its gradients,
        unless they are kept as rows.
    """

    def __init__(self, device: str, trained: Iterable[Weight], layout: EmissionLayout,
                 num_micro_batches: int = 1, num_groups: int = 1,
                 rows: Mapping[str, int] | None = None):
        """Creates all variables.

        Args:
          device: where the variables are.
          trained: the weights (as used, not as owned) whose gradients are summed, in the dtype of
            the weight or, if that is narrower, in float32.
          layout: the layout of what the cell emits.
          num_micro_batches: M.
          num_groups: PipelineParams.sum_groups.
          rows: path of a weight -> the most rows that its gradient has in a mini-batch, if these
            are kept.
        """
        rows = rows or {}
        self.layout = layout
        self._num_groups = num_groups
        self._group_size = num_micro_batches // num_groups
        with tf.device(device):
            self._gradients = {
                weight.path: self._summed(
                    tf.TensorSpec(weight.shape, accumulator_dtype(weight.dtype)), 'gradient', _add)
                for weight in trained if weight.path not in rows}
            self._rows = {weight.path: _Rows(weight, rows[weight.path])
                          for weight in trained if weight.path in rows}
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

    def add_gradient(self, path: str, gradient: Gradient, micro_batch: tf.Tensor
                     ) -> list[tf.Operation]:
        """Makes the ops that add the gradient of one micro-batch, whose index is a scalar."""
        if path in self._rows:
            return self._rows[path].put(gradient, micro_batch)
        variable = self.gradients[path]
        return [tf.raw_ops.AssignAddVariableOp(
            resource=variable.handle, value=tf.cast(gradient, variable.dtype))]

    def add_emissions(self, emitted: Emissions) -> list[tf.Operation]:
        """Makes the ops that add the emissions of one micro-batch, which must match the layout."""
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

    def ends_group(self, micro_batch: int) -> bool:
        """Whether a micro-batch is the last of a group, and there is more than one group."""
        return self._num_groups > 1 and (micro_batch + 1) % self._group_size == 0

    def end_of_group(self, micro_batch: int, adds_emissions: bool,
                     adds_gradients: bool) -> list[tf.Operation]:
        """Makes the ops that must run at the end of a group, before the cell's next task.

        There are none unless the micro-batch ends a group and the task adds something.

        Args:
          micro_batch: the index of the micro-batch in the mini-batch.
          adds_emissions, adds_gradients: what the task adds.
        """
        if not self.ends_group(micro_batch):
            return []
        group = (micro_batch + 1) // self._group_size
        complete = []
        if adds_emissions:
            complete += [one for one in (self._scalars, self._averages) if one is not None]
        if adds_gradients:
            complete += self._gradients.values()
        return [self._end_of_group(one, group) for one in complete]

    def _end_of_group(self, accumulator: Accumulator, group: int) -> tf.Operation:
        """Sets a sum aside and restarts it or, after the last group, adds up all groups."""
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
        """Reads everything that was emitted since the last reset."""
        scalars = None if self._scalars is None else self._scalars.variable.read_value()
        averages = None if self._averages is None else self._averages.variable.read_value()
        states: dict[Key, tf.Tensor] = {
            key: one.variable.read_value() for key, one in self._states.items()}
        return self.layout.unpacked(scalars, averages, states)

    def gradient(self, path: str) -> Gradient:
        """Reads the gradient of a weight, as used, since the last reset; rows have no shape."""
        if path in self._rows:
            return self._rows[path].read()
        return self.gradients[path].read_value()

    def of_gradient(self, path: str) -> list[tf.Variable]:
        """The variables that hold the gradient of a weight, as used."""
        if path in self._rows:
            return [self._rows[path].values, self._rows[path].indices]
        return [self.gradients[path]]

    def all(self) -> list[Accumulator]:
        """All sums; those of gradients come first."""
        rows = [Accumulator(variable, _add)
                for rows in self._rows.values() for variable in (rows.values, rows.indices)]
        return [*self._gradients.values(), *self._emitted(), *rows]

    def variables(self) -> list[tf.Variable]:
        """The variables that tasks add to, in the order of `all`."""
        return [one.variable for one in self.all()]

    def by_layer(self, elements: Iterable[Element]) -> list[list[tf.Variable]]:
        """The variables that tasks add to: of the gradients of each layer, then of emissions.

        Args:
          elements: the layers of the cell.
        """
        of_layers = [[variable for weight in element.trained
                      for variable in self.of_gradient(weight.path)] for element in elements]
        of_emissions = [one.variable for one in self._emitted()]
        return [variables for variables in (*of_layers, of_emissions) if variables]

    def _emitted(self) -> list[Accumulator]:
        """The sums of what layers emit."""
        summed = [one for one in (self._scalars, self._averages) if one is not None]
        return [*summed, *self._states.values()]

    def reset(self) -> tf.Tensor:
        """Sets all sums to zero, one after the other; the result exists once this is done."""
        return set_to_zero(self.variables())


class _Rows:
    """The rows of the gradient of one weight, in the order of micro-batches."""

    def __init__(self, weight: Weight, num_rows: int):
        self.values = _variable(tf.TensorSpec([num_rows, *weight.shape[1:]],
                                              accumulator_dtype(weight.dtype)), 'gradient_rows')
        self.indices = _variable(tf.TensorSpec([num_rows], tf.int64), 'gradient_indices')

    def put(self, gradient: tf.IndexedSlices, micro_batch: tf.Tensor) -> list[tf.Operation]:
        """Makes the ops that put the rows of one micro-batch into their place."""
        num_rows = gradient.values.shape[0]
        begin = tf.reshape(micro_batch, [1]) * num_rows
        return [
            tf.raw_ops.ResourceStridedSliceAssign(
                ref=variable.handle, begin=begin, end=begin + num_rows, strides=[1],
                value=tf.cast(new, variable.dtype))
            for variable, new in [(self.values, gradient.values), (self.indices, gradient.indices)]]

    def read(self) -> tf.IndexedSlices:
        """All rows; those of no micro-batch are zeros for row 0 of the weight."""
        return tf.IndexedSlices(self.values.read_value(), self.indices.read_value())


def without_gradients(cell: Cell, layout: EmissionLayout) -> Accumulators:
    """The accumulators of a cell that only runs forward, for what it emits."""
    return Accumulators(cell.device, [], layout)


def set_to_zero(variables: Iterable[tf.Variable]) -> tf.Tensor:
    """Sets variables to zero, one after the other; the result exists once this is done."""
    done: list[tf.Operation] = []
    for variable in variables:
        with tf.control_dependencies(done):
            # ZerosLike, since TensorFlow would fold zeros of a given shape into a constant for
            # every weight.
            done = [_assign(variable, tf.raw_ops.ZerosLike(x=_read(variable)))]
    with tf.control_dependencies(done):
        return tf.constant(0)


def _variable(spec: tf.TensorSpec, name: str) -> tf.Variable:
    return tf.Variable(tf.zeros(spec.shape, spec.dtype), trainable=False, name=name)


def _read(variable: tf.Variable) -> tf.Tensor:
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def _assign(variable: tf.Variable, value: tf.Tensor) -> tf.Operation:
    return tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)


def _add(old: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
    return old + new


def _first(old: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
    """Keeps the first value: a state is the same in every micro-batch and every replica."""
    return old
