"""Task values: the tensors that go from one call of a task to the next within a step."""
from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import tensorflow as tf

from lingpipe.cluster import HOME
from lingpipe.layers import nested
from lingpipe.pipeline.execution.batch_source import BatchesByHost
from lingpipe.pipeline.execution.cast_weights import NarrowWeight
from lingpipe.pipeline.execution.compiled_pipeline import CompiledPipeline
from lingpipe.pipeline.execution.mean_weight import MEAN_WEIGHT
from lingpipe.pipeline.execution.reading_hosts import source_of
from lingpipe.pipeline.execution.wire import Wire
from lingpipe.pipeline.planning.cell import Cell, Leaf, edges_of_tasks
from lingpipe.pipeline.planning.dataflow import BATCH, Value
from lingpipe.pipeline.planning.playing import play
from lingpipe.pipeline.planning.schedule import Slot


@dataclasses.dataclass(frozen=True, eq=False)
class ReplicaBatch:
    """The input of one replica in a step.

    Attributes:
      values: its part of the mini-batch, as nested tensors by name, at every host that has it.
      step: int64 scalar.
      first_micro_batch: int32 scalar, the index of its first micro-batch among all those that are
        accumulated for one update.
      mean_weight: Context.mean_weight; None if no task uses it.
    """
    values: BatchesByHost
    step: tf.Tensor
    first_micro_batch: tf.Tensor
    mean_weight: tf.Tensor | None = None


class TaskValues:
    """The results of the calls so far, from which it chooses the arguments of the next call.

    Calls must be made in an order in which all arguments of a call exist before it. The class works
    with the tensors of a graph that is being traced and, eagerly, with values.
    """

    def __init__(self, pipeline: CompiledPipeline, batch: ReplicaBatch, wire: Wire):
        """
        Args:
          pipeline: the tasks to call.
          batch: the input of the replica.
          wire: what carries values to other devices.
        """
        cells, num_micro_batches = pipeline.cells, pipeline.schedule.num_micro_batches
        self._pipeline, self._wire, self._step = pipeline, wire, batch.step
        self._devices = [cell.device for cell in cells]
        self._indices = _indices(batch.first_micro_batch, self._devices, num_micro_batches)
        shared = dict.fromkeys(path for task in pipeline.tasks.values() for path in task.shared)
        self._shared = {path: pipeline.read_shared(path) for path in shared}
        self._casts = _casts(pipeline)

        # The wire carries what cells have written, and not the parts of the mini-batch or the mean
        # weight.
        self._hosts: Collection[str] = batch.values.keys()
        self._parts = _split(batch.values, cells, num_micro_batches)
        self._values: dict[tuple[Leaf, int], tf.Tensor] = {}
        if batch.mean_weight is not None:
            self._values.update({(MEAN_WEIGHT, m): batch.mean_weight
                                 for m in range(num_micro_batches)})

        self._makers: dict[tuple[Leaf, int], str] = {}
        self._gradients: dict[tuple[Leaf, int], tf.Tensor] = {}
        self._adders: dict[tuple[Leaf, int], str] = {}
        self._residuals: dict[tuple[int, int], dict[str, tf.Tensor]] = {}

    def taken_by(self, slot: Slot) -> list[tf.Tensor]:
        """Returns the arguments of the slot's task after `position`.

        Forgets the residuals of a micro-batch with the last task of the cell that takes any.
        """
        _, k, m = slot
        task, device = self._pipeline.task_of(slot), self._devices[k]
        inputs = [self._carried(self._value(leaf, m, device),
                                self._makers.get((leaf, m), device), device)
                  for leaf in task.inputs]
        shared = [self._shared[path] for path in task.shared]
        casts = [self._casts[device, weight] for weight in task.casts]
        gradients = [self._carried(self._gradients[leaf, m], self._adders[leaf, m], device)
                     for leaf in task.gradients_in]
        residuals = self._residuals.get((k, m), {})
        if self._pipeline.schedule.adds_gradients(slot):
            self._residuals.pop((k, m), None)
        return [*inputs, *shared, *casts, *gradients,
                *(residuals[name] for name in task.residuals_in)]

    def position(self, slot: Slot) -> list[tf.Tensor]:
        """Returns the first two arguments of the slot's task: the step and the micro-batch."""
        return [self._step, self._indices[self._devices[slot.cell]][slot.micro_batch]]

    def keep(self, slot: Slot, results: Sequence[tf.Tensor]) -> None:
        """Stores the results of the slot's task."""
        _, k, m = slot
        task, device = self._pipeline.task_of(slot), self._devices[k]
        num_values, num_gradients = len(task.outputs), len(task.gradients_out)
        for leaf, tensor in zip(task.outputs, results[:num_values], strict=True):
            _set_shape(tensor, leaf)
            self._values[leaf, m], self._makers[leaf, m] = tensor, device
        gradients = results[num_values:num_values + num_gradients]
        for leaf, tensor in zip(task.gradients_out, gradients, strict=True):
            _set_shape(tensor, leaf)
            self._gradients[leaf, m], self._adders[leaf, m] = tensor, device
        residuals = zip(task.residuals_out, results[num_values + num_gradients:-1], strict=True)
        self._residuals.setdefault((k, m), {}).update(residuals)

    def leaf(self, leaf: Leaf, micro_batch: int) -> tf.Tensor:
        """Returns a leaf of a value that a cell has written for others, or of the mini-batch."""
        return self._value(leaf, micro_batch, HOME)

    def _value(self, leaf: Leaf, micro_batch: int, reader: str) -> tf.Tensor:
        """Returns a leaf for a device that reads it, which may be where another device is."""
        if (leaf, micro_batch) in self._values:
            return self._values[leaf, micro_batch]
        return self._parts[source_of(reader, self._hosts), leaf, micro_batch]

    def _carried(self, tensor: tf.Tensor, maker: str, reader: str) -> tf.Tensor:
        return self._wire.carried(tensor, maker, reader)


def _set_shape(tensor: tf.Tensor, leaf: Leaf) -> None:
    """Gives the result of a call its shape, which TensorFlow knows of first calls only."""
    value, i = leaf
    tensor.set_shape(value.specs[i].shape)


def order_of_calls(pipeline: CompiledPipeline) -> list[Slot]:
    """Returns all slots, in an order in which every value is written before it is read."""
    return list(play(pipeline.schedule, lambda slot: 1.0, edges_of_tasks(pipeline.cells)))


def _casts(pipeline: CompiledPipeline) -> dict[tuple[str, NarrowWeight], tf.Tensor]:
    """Returns (device, weight) -> a weight, cast there, for all that the tasks take."""
    casts = {}
    for (_, k), task in pipeline.tasks.items():
        device = pipeline.cells[k].device
        for weight in task.casts:
            if (device, weight) not in casts:
                value = pipeline.read_shared(weight.path)
                with tf.device(device):
                    casts[device, weight] = tf.cast(value, weight.dtype)
    return casts


def _indices(first: tf.Tensor, devices: Sequence[str],
             num_micro_batches: int) -> dict[str, list[tf.Tensor]]:
    """Returns device -> the indices of all micro-batches, computed there so that none is sent."""
    indices = {}
    for device in dict.fromkeys(devices):
        with tf.device(device):
            indices[device] = tf.unstack(first + tf.range(num_micro_batches))
    return indices


def _split(batches: BatchesByHost, cells: Sequence[Cell],
           num_micro_batches: int) -> dict[tuple[str, Leaf, int], tf.Tensor]:
    """Splits a mini-batch at the hosts from which the parts go to their readers."""
    parts = {}
    for host, batch in batches.items():
        readers = [cell for cell in cells if source_of(cell.device, batches) == host]
        with tf.device(host):
            for value in _values_of_batch(readers):
                for i, tensor in enumerate(nested.leaves(batch[value.name])):
                    for m, part in enumerate(tf.split(tensor, num_micro_batches)):
                        parts[host, (value, i), m] = part
    return parts


def _values_of_batch(cells: Sequence[Cell]) -> list[Value]:
    inputs = [value for cell in cells for value in cell.inputs]
    return list(dict.fromkeys(value for value in inputs if value.maker == BATCH))
