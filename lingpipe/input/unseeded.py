"""Unseeded: datasets that shuffle in another order each time they are made."""
from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf


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
