"""Task call: the ops by which the graph of a step calls a compiled task.

The obvious way is to call the ConcreteFunction, M times. TensorFlow then looks at each argument and
each result of each call in Python, which takes 9 ms for a cell with hundreds of residuals, and goes
through the whole function once more to infer the shapes of the results, which takes 3 ms for six
Transformer layers. Here this is done for the first call only. The others are ops with the same
attributes, captured variables and device, whose results have no known shapes.
"""
from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

# TensorFlow's attribute of calls whose results have no known shapes.
_WITHOUT_SHAPES = {'_disable_call_shape_inference': tf.compat.v1.AttrValue(b=True)}


class TaskCall:
    """Adds the calls of one function, on one device, to one graph."""

    def __init__(self, function: tf.types.experimental.ConcreteFunction, device: str):
        """
        Args:
          function: a function of tensors that returns a list of tensors.
          device: a tf.device string.
        """
        self._function, self._device = function, device
        self._first: tf.Operation | None = None

    def add(self, args: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Adds a call to the graph that is being traced.

        Args:
          args: tensors of that graph.
        """
        if self._first is None:
            with tf.device(self._device):
                results: list[tf.Tensor] = self._function(*args)
            self._first = results[0].op
            self._attributes = {**self._first.node_def.attr, **_WITHOUT_SHAPES}
            self._captured = list(self._first.inputs)[len(args):]
            return results

        # Not FuncGraph's method, which looks up for every tensor whether it belongs to the graph.
        op = tf.Graph._create_op_internal(
            self._first.graph, self._first.type, [*args, *self._captured],
            attrs=self._attributes, compute_device=False)
        op._set_device(self._first.device)
        return list(op.outputs)
