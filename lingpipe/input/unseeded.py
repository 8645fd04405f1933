"""Unseeded: what makes the examples of an input differ each time that it is read."""
from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from absl import logging

from lingpipe.learning.random_ops import DRAWING, first_random_op

# A generator of random numbers of Keras keeps its state in a variable.
_DRAWING_OR_COUNTING = DRAWING | {'AssignVariableOp', 'AssignAddVariableOp', 'AssignSubVariableOp'}


def warn_of_random_ops(name: str) -> None:
    """Warns if the methods of the input called `name` draw random numbers by ops with a state.

    It is called at the end of what tf.data traces, and looks at the graph that this has made.
    """
    if op := first_random_op(tf.compat.v1.get_default_graph(), _DRAWING_OR_COUNTING):
        logging.warning(
            '%s makes the stateful op %s: each start sees other examples, so that no result can be '
            'reproduced, and a resumed run is not the uninterrupted one; draw random numbers in '
            'preprocess by tf.random.stateless_* or tf.image.stateless_random_*, with the seed '
            'that it is given', name, op)


def shuffles_without_seed(make: Callable[[], tf.data.Dataset]) -> bool:
    """Whether the datasets of a function shuffle without a seed, as far as is known.

    What the functions of flat_map and the like make is not looked at.

    Args:
      make: returns a dataset, each time another.
    """
    seeds = _shuffle_seeds(make())
    # Two zeros mean that the op draws its own seed. After tf.random.set_seed, each op that is made
    # gets the next seed of TensorFlow's.
    return (0, 0) in seeds or bool(seeds) and _shuffle_seeds(make()) != seeds


def _shuffle_seeds(dataset: tf.data.Dataset) -> list[tuple[int, int]]:
    """The two seeds of each shuffle of a dataset and of those that it is made of, where known."""
    seeds = list[tuple[int, int]]()
    left, seen = [dataset], set[tf.data.Dataset]()
    while left:
        one = left.pop()
        if one in seen:
            continue
        seen.add(one)
        if 'Shuffle' in type(one).__name__:
            # TensorFlow has no public way to them.
            tensors = [getattr(one, '_seed', None), getattr(one, '_seed2', None)]
            first, second = (None if t is None else tf.get_static_value(t) for t in tensors)
            if first is not None and second is not None:
                seeds.append((int(first), int(second)))
        left += one._inputs()
    return seeds
