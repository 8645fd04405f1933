"""Copier: the values of many variables at one moment, by one call of a graph.

The obvious way is an op for each variable. It takes Python 35 to 60 us a variable, for which every
step would wait in which a checkpoint begins: 41 ms for 721 variables. A graph with an input and an
output for each variable takes 8 us. Here the handles of a group of variables are one input, and
their values are one output, which takes 1 us. Whoever reads the values unpacks them later, beside
the steps.

Such an output of a worker would be sent to this process with all that is in it. So a worker keeps
it in a variable of its own, the shelf, until it is unpacked there.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf

from lingpipe.cluster.client import (
    done_after,
    host_of,
    is_on_worker,
    wait_for_assignments,
)
from lingpipe.process.graph_lifetime import wrap_function

_GROUP_SIZE = 64   # variables: preparing a group takes a time that grows with its size squared


class Copier:
    """Copies the values of variables, on whatever devices they are."""

    def __init__(self, variables: Mapping[str, tf.Variable]):
        """Traces the graph, and runs it once, since the first run takes long.

        Args:
          variables: by key.
        """
        self._variables = dict(variables)
        keys_by_device: dict[str, list[str]] = {}
        for key, variable in variables.items():
            keys_by_device.setdefault(variable.device, []).append(key)

        # All keys of a group are on one device.
        self._groups = [keys[start:start + _GROUP_SIZE] for keys in keys_by_device.values()
                        for start in range(0, len(keys), _GROUP_SIZE)]
        self._group_of = {key: number for number, group in enumerate(self._groups)
                          for key in group}

        handles = [self._handles(group) for group in self._groups]
        self._shelves = [self._shelf(group) for group in self._groups]
        wait_for_assignments(shelf for shelf in self._shelves if shelf is not None)
        self._graph = wrap_function(
            lambda: [self._copied(*one) for one in
                     zip(self._groups, handles, self._shelves, strict=True)], [])
        self._emptying: dict[int, Callable[[], list[tf.Tensor]]] = {}   # graphs, by group
        self.copy()
        for number in range(len(self._groups)):
            self._emptied(number)

    def is_of(self, variables: Mapping[str, tf.Variable]) -> bool:
        """Whether it copies these variables by these keys, and no others."""
        has_same_keys = self._variables.keys() == variables.keys()
        return has_same_keys and all(self._variables[key] is variable
                                     for key, variable in variables.items())

    def copy(self) -> Callable[[str], tf.Tensor]:
        """Copies all values as they are now, in the memory of each variable's own process.

        Returns:
          A function that returns the value of a key. It can be called once for each key. A group of
          values is unpacked when one of them is wanted.

        Raises:
          tf.errors.OpError: a variable cannot be read.
        """
        packed_groups = dict(enumerate(self._graph()))
        values: dict[str, tf.Tensor] = {}

        def take(key: str) -> tf.Tensor:
            """Returns the value and forgets it."""
            if key not in values:
                number = self._group_of[key]
                group, packed = self._groups[number], packed_groups.pop(number)
                is_on_shelf = self._shelves[number] is not None
                tensors = self._emptied(number) if is_on_shelf else self._unpacked(group, packed)
                values.update(zip(group, tensors, strict=True))
            return values.pop(key)

        return take

    def _shelf(self, group: list[str]) -> tf.Variable | None:
        """Returns the variable in which a worker keeps a group; None for this process."""
        device = self._variables[group[0]].device
        if not is_on_worker(device):
            return None
        with tf.device(host_of(device)):
            return tf.Variable(tf.raw_ops.OptionalNone(), trainable=False)

    def _emptied(self, number: int) -> list[tf.Tensor]:
        """Takes a group from its shelf; returns its values, which stay on the worker.

        This is a graph. Single ops would be overtaken by the next copy, or overtake this one.
        """
        group, shelf = self._groups[number], self._shelves[number]
        if shelf is None:
            return []

        def body() -> list[tf.Tensor]:
            """Returns the values, and one that is there once the shelf is empty."""
            with tf.device(shelf.device):
                packed = tf.raw_ops.ReadVariableOp(resource=shelf.handle, dtype=tf.variant)
                values = self._unpacked(group, packed)
                with tf.control_dependencies(values):
                    emptied = tf.raw_ops.AssignVariableOp(
                        resource=shelf.handle, value=tf.raw_ops.OptionalNone())
            return [*values, done_after(emptied)]

        if number not in self._emptying:
            self._emptying[number] = wrap_function(body, [])
        return list(self._emptying[number]()[:-1])

    def _copied(self, group: list[str], handles: list[tf.Tensor] | tf.Tensor,
                shelf: tf.Variable | None) -> tf.Tensor:
        """Reads a group; returns it, or a value that is there once it is on its shelf."""
        packed = self._read(group, handles)
        if shelf is None:
            return packed
        with tf.device(shelf.device):
            put = tf.raw_ops.AssignVariableOp(resource=shelf.handle, value=packed)
        return done_after(put)

    def _unpacked(self, group: list[str], packed: tf.Tensor) -> list[tf.Tensor]:
        """Returns the values of a group."""
        variables = [self._variables[key] for key in group]
        with tf.device(packed.device):
            return list(tf.raw_ops.OptionalGetValue(
                optional=packed, output_types=[v.dtype for v in variables],
                output_shapes=[v.shape for v in variables]))

    def _handles(self, group: list[str]) -> list[tf.Tensor] | tf.Tensor:
        """Returns the handles of a group: as one value if its device computes in host memory."""
        handles = [self._variables[key].handle for key in group]
        device = self._variables[group[0]].device
        if not is_in_host_memory(device):
            return handles
        with tf.device(device):
            return tf.raw_ops.OptionalFromValue(components=handles)

    def _read(self, group: list[str], handles: list[tf.Tensor] | tf.Tensor) -> tf.Tensor:
        """Reads the variables of a group as one value, in the host memory of their process."""
        variables = [self._variables[key] for key in group]
        device = variables[0].device
        with tf.device(device):
            if not isinstance(handles, list):
                handles = tf.raw_ops.OptionalGetValue(
                    optional=handles, output_types=[tf.resource] * len(group),
                    output_shapes=[[]] * len(group))
            values = [tf.raw_ops.ReadVariableOp(resource=handle, dtype=variable.dtype)
                      for handle, variable in zip(handles, variables, strict=True)]

        if not is_in_host_memory(device):
            device = host_of(device)
        with tf.device(device):
            return tf.raw_ops.OptionalFromValue(components=values)


def is_in_host_memory(device: str) -> bool:
    """Whether the tensors of a device are in the memory of its process, as those of CPUs are."""
    return 'device:CPU:' in device
