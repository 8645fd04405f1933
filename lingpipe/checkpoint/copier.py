"""Copier: the values of many variables at one moment, by one call of a graph.

The obvious way, an op for each variable, takes Python 35 to 60 us a variable, which every step in which a checkpoint begins would wait for:
41 ms for 721 variables. A graph with an input and an output for each variable takes 8 us. Here the handles of a group of variables are one
input and their values one output, which takes 1 us; whoever reads the values, later and beside the steps, takes them apart.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf

from lingpipe.cluster.client import wait_for_ops

_GROUP = 64   # variables: to make a group ready takes a time that grows with the square of its size


class Copier:
    """Copies the values of variables, on whatever devices they are."""

    def __init__(self, variables: Mapping[str, tf.Variable]):
        """Traces the graph, and runs it once, since the first time takes long.

        Args:
          variables: by key.
        """
        self._variables = dict(variables)
        by_device: dict[str, list[str]] = {}
        for key, variable in variables.items():
            by_device.setdefault(variable.device, []).append(key)
        self._groups = [keys[i:i + _GROUP] for keys in by_device.values() for i in range(0, len(keys), _GROUP)]
        self._group_of = {key: number for number, group in enumerate(self._groups) for key in group}
        handles = [self._handles(group) for group in self._groups]
        self._graph = tf.compat.v1.wrap_function(lambda: [self._read(*one) for one in zip(self._groups, handles, strict=True)], [])
        self.copy()

    def is_of(self, variables: Mapping[str, tf.Variable]) -> bool:
        """Whether it copies these variables by these keys, and no others."""
        return self._variables.keys() == variables.keys() and all(self._variables[key] is one for key, one in variables.items())

    def copy(self) -> Callable[[str], tf.Tensor]:
        """Returns what gives, once for each key, the value that the variable has now, in the memory of the variable's own process.

        What is run later does not change it. A group of values is taken apart when one of them is wanted.

        Raises:
          tf.errors.OpError: a variable cannot be read.
        """
        copies = self._graph()
        wait_for_ops(copies)
        groups = dict(enumerate(copies))
        values: dict[str, tf.Tensor] = {}

        def take(key: str) -> tf.Tensor:
            """The value, which is not kept."""
            if key not in values:
                number = self._group_of[key]
                copy, variables = groups.pop(number), [self._variables[one] for one in self._groups[number]]
                with tf.device(copy.device):
                    values.update(zip(self._groups[number], tf.raw_ops.OptionalGetValue(
                        optional=copy, output_types=[v.dtype for v in variables], output_shapes=[v.shape for v in variables]), strict=True))
            return values.pop(key)
        return take

    def _handles(self, group: list[str]) -> list[tf.Tensor] | tf.Tensor:
        """The handles of variables of one device; as one value, unless the device would have it in a memory of its own."""
        handles = [self._variables[key].handle for key in group]
        device = self._variables[group[0]].device
        if 'device:CPU:' not in device:
            return handles
        with tf.device(device):
            return tf.raw_ops.OptionalFromValue(components=handles)

    def _read(self, group: list[str], handles: list[tf.Tensor] | tf.Tensor) -> tf.Tensor:
        """The values of variables of one device as one value, in the memory of its process."""
        variables = [self._variables[key] for key in group]
        device = variables[0].device
        with tf.device(device):
            if not isinstance(handles, list):
                handles = tf.raw_ops.OptionalGetValue(optional=handles, output_types=[tf.resource] * len(group),
                                                      output_shapes=[[]] * len(group))
            values = [tf.raw_ops.ReadVariableOp(resource=handle, dtype=v.dtype) for handle, v in zip(handles, variables, strict=True)]
        if 'device:CPU:' not in device:
            device = tf.DeviceSpec.from_string(device).replace(device_type='CPU', device_index=0).to_string()
        with tf.device(device):
            return tf.raw_ops.OptionalFromValue(components=values)
