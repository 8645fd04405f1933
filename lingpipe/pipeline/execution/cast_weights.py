"""Cast weights: the weights that layers use in a narrower dtype, such as bfloat16.

A layer casts its weights whenever it runs, so that each would be cast in every task: 16 times a
step with M = 8. A weight is the same in all tasks of a step. So the cast is cut out of the tasks,
which take its result as an argument, and it is made once a step, on the device of the cell. The
numbers are the same. The copies are held until the last task of the step.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from lingpipe.pricing import narrow_casts


class NarrowWeight(NamedTuple):
    """A weight in a narrower dtype.

    Attributes:
      path: of the weight, as owned.
      dtype: the narrower one.
    """
    path: str
    dtype: tf.DType


@dataclasses.dataclass(frozen=True, eq=False)
class CastWeight:
    """One cast of a weight in the graph of a cell.

    Attributes:
      weight: what it makes.
      tensor: the result in that graph.
    """
    weight: NarrowWeight
    tensor: tf.Tensor


def cast_weights(graph: tf.Graph, weights: Mapping[str, Sequence[tf.Tensor]]) -> list[CastWeight]:
    """Returns all casts of weights to a narrower dtype in the graph of a cell.

    Args:
      graph: the graph.
      weights: path of a weight, as owned -> its tensors, one for each use.
    """
    path_of = {tensor.name: path for path, tensors in weights.items() for tensor in tensors}
    return [CastWeight(NarrowWeight(path_of[cast.op.inputs[0].name], cast.dtype), cast)
            for cast in narrow_casts(graph, path_of)]
