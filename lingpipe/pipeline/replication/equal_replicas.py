"""Equal replicas: they begin with the same weights, and are bitwise identical after every step."""
from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from lingpipe.pipeline.execution.variables import Variables


def copy_first(replicas: Sequence[Variables]) -> None:
    """Copies the weights, slots and averages of the first replica to all others that hold them."""
    first = replicas[0].by_key()
    for replica in replicas[1:]:
        for key, variable in replica.by_key().items():
            if variable is first[key]:   # Slots are sharded, and this replica keeps this one.
                continue
            with tf.device(variable.device):
                variable.assign(tf.identity(first[key]))


def check_equal(replicas: Sequence[Variables]) -> None:
    """Raises ArithmeticError, which names the variable, unless replicas are bitwise identical."""
    first = replicas[0].by_key()
    for index, replica in enumerate(replicas[1:], start=1):
        for key, variable in replica.by_key().items():
            if variable.numpy().tobytes() != first[key].numpy().tobytes():
                raise ArithmeticError(
                    f'{key} of replica {index} differs from that of replica 0, and they must be '
                    'equal to the last bit: a device errs, or other code set a weight; go on from '
                    'the last checkpoint.')
