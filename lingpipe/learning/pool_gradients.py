"""Pool gradients: the gradient of a maximum pooling, beside a pooling of its own.

On CPUs, TensorFlow has two kernels for MaxPoolGrad: oneDNN's, where the pooling whose output it
reads is in the same graph and leaves it a workspace, and another one elsewhere. They add in another
order, and the second takes 30 to 90 times as long (13.7 ms where oneDNN takes 0.15, for images of
[8, 32, 32, 64] and windows of 3 x 3; machine D). Which one it is must not depend on whether a cell
computes forward and backward in one task, as the last cell does, and others where they run again.
So the pooling is made once more, beside its gradient, of the input that the gradient reads anyway.
On GPUs that costs a pooling and changes nothing.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

_POOLS = {'MaxPoolGrad': 'MaxPool', 'MaxPool3DGrad': 'MaxPool3D'}
_ATTRIBUTES = ('ksize', 'strides', 'padding', 'data_format', 'explicit_paddings')
_OUTPUT = 1  # The input of a gradient op that is the pooling's output; 0 is its input.
_GRADIENT = 2


def pair_with_pools(ops: Iterable[tf.Operation]) -> None:
    """Gives each gradient of a maximum pooling among these ops a pooling that only it reads.

    Args:
      ops: of the default graph, which is still being made.
    """
    for op in list(ops):
        if op.type in _POOLS:
            attributes = {name: _attribute(op, name) for name in _ATTRIBUTES
                          if name in op.node_def.attr}
            pool = getattr(tf.raw_ops, _POOLS[op.type])
            # Without this order, the pooling would run as soon as the task begins.
            with tf.control_dependencies([op.inputs[_GRADIENT]]), tf.name_scope(f'{op.name}_pool'):
                output = pool(input=op.inputs[0], **attributes)
            # TensorFlow has no public way to it: its gradient functions make the op.
            op._update_input(_OUTPUT, output)


def _attribute(op: tf.Operation, name: str) -> Any:
    value = op.get_attr(name)
    return value.decode() if isinstance(value, bytes) else value
