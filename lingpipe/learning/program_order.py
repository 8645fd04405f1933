"""Program order: operations of a graph that run one after the other, as they would without a graph.

TensorFlow begins with every operation whose inputs exist. In the update of a weight that holds more
tensors of the weight's size at once than running them in the order of the program: 5 in place of 3
with RMSProp and momentum.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf


@contextlib.contextmanager
def in_program_order(shape: tf.TensorShape) -> Iterator[None]:
    """Orders the operations on large tensors that are traced in its block.

    Eagerly, nothing need be done.

    Args:
      shape: a tensor that has as many elements is large.
    """
    if tf.executing_eagerly():
        yield
        return
    graph = tf.compat.v1.get_default_graph()
    num_before = len(graph.get_operations())
    yield
    size = shape.num_elements()
    large = [op for op in graph.get_operations()[num_before:] if _has_large_tensor(op, size)]
    for earlier, later in zip(large, large[1:], strict=False):
        # TensorFlow has no public way to it: tf.control_dependencies must be open before `later` is
        # made, and it is made by Keras.
        later._add_control_input(earlier)


def _has_large_tensor(op: tf.Operation, size: int) -> bool:
    return op.type != 'Const' and any(
        not tensor.shape.is_fully_defined() or tensor.shape.num_elements() >= size
        for tensor in (*op.inputs, *op.outputs) if tensor.dtype != tf.resource)
