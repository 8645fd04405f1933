"""Rate check: whether a learning rate can be part of the graph of a step.

The graph is built once, so the rate must be computed from the tensor of the step by TensorFlow, and
be the same whenever a run comes to this step.
"""
from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from lingpipe.learning.learning_rates import IncompleteScheduleError
from lingpipe.learning.random_ops import first_random_op


def check_rate(rate: Callable[[tf.Tensor], tf.Tensor], name: str) -> None:
    """Raises ValueError unless a rate is a scalar that a graph computes from the step alone.

    Args:
      rate: number of updates made -> the rate of the next one.
      name: what errors call it.
    """
    try:
        # Traced as a step is, so that it may use tensors that were made outside.
        function = tf.function(
            lambda step: tf.cast(rate(step), tf.float32), autograph=False
        ).get_concrete_function(tf.TensorSpec([], tf.int64))
    except IncompleteScheduleError:   # It says itself what is missing.
        raise
    except Exception as error:
        first_line = str(error).strip().split('\n')[0]
        raise ValueError(
            f'the learning rate {name} fails when it is given the step: {first_line} The step '
            'is a tensor of TensorFlow, int64 in __call__ and float32 in decay; convert it '
            'with tf.cast, compute with tf.math in place of NumPy, and choose with tf.where in '
            'place of if.') from error
    shape = function.structured_outputs.shape
    if shape.rank not in (0, None):   # What Python computes in a graph has no known shape.
        raise ValueError(f'the learning rate {name} has the shape {shape}, but a rate is '
                         'one number, of shape (); return a scalar.')
    if op := first_random_op(function.graph):
        raise ValueError(f'the learning rate {name} makes the stateful op {op}, but must depend '
                         'on the step alone, or a resumed run would give other results; for random '
                         'numbers use tf.random.stateless_uniform with a seed made of the step.')
    if function.variables:
        raise ValueError(f'the learning rate {name} reads the variable '
                         f'{function.variables[0].name}, which no checkpoint holds, so that a '
                         'resumed run would give other results; compute the rate from the step '
                         'alone.')
