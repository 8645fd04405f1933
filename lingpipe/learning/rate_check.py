"""Rate check: whether a learning rate can be part of the graph of a step.

The graph is built once, so the rate must be computed from the tensor of the step by TensorFlow, and
be the same whenever a run comes to this step.
"""
from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf


def check_rate(rate: Callable[[tf.Tensor], tf.Tensor], name: str) -> None:
    """Raises ValueError unless a rate is a scalar that a graph computes from the step alone.

    Args:
      rate: number of updates made -> the rate of the next one.
      name: what errors call it.
    """
    with tf.Graph().as_default() as graph:
        step = tf.compat.v1.placeholder(tf.int64, [])
        try:
            value = tf.cast(rate(step), tf.float32)
        except NotImplementedError:   # It has no peak or no decay, and says so itself.
            raise
        except Exception as error:
            first_line = str(error).strip().split('\n')[0]
            raise ValueError(
                f'the learning rate {name} fails when it is given the step: {first_line} The step '
                'is a tensor of TensorFlow, int64 in __call__ and float32 in decay; convert it '
                'with tf.cast, and choose with tf.where in place of if.') from error
        if value.shape.rank != 0:
            raise ValueError(f'the learning rate {name} has the shape {value.shape}, but a rate is '
                             'one number, of shape (); return a scalar.')
        random = [op.type for op in graph.get_operations()
                  if op.op_def.is_stateful and op.type != 'Placeholder']
    if random:
        raise ValueError(f'the learning rate {name} makes the stateful op {random[0]}, but must '
                         'depend on the step alone, or a resumed run would give other results; for '
                         'random numbers use tf.random.stateless_uniform with a seed made of the '
                         'step.')
