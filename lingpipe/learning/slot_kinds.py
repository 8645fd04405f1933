"""Slot kinds: which slots and averages a weight has, before there is one."""
from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from lingpipe.learning.layer_learner import LayerLearner
from lingpipe.learning.update_rule import UpdateRule


class SlotKind(NamedTuple):
    """A slot or an average: its dtype, and the axes of the weight that are its axes."""
    axes: tuple[int, ...]
    dtype: tf.DType


def slots_of_weight(rule: UpdateRule, rank: int, dtype: tf.DType) -> list[SlotKind]:
    """The slots and the average of a weight, as a small one shows whose axes differ in size."""
    axis_of_size = {size: axis for axis, size in enumerate(range(2, 2 + rank))}
    small = tf.Variable(tf.zeros(list(axis_of_size), dtype))
    layer = LayerLearner(rule, 'layer', {'weight': small})
    return [SlotKind(tuple(axis_of_size[size] for size in variable.shape), variable.dtype)
            for key, variable in layer.variables().items()
            if key.startswith(('ema/weight', 'optimizer/weight/'))]
