"""Unseeded: datasets that shuffle in another order each time they are made."""
from __future__ import annotations

import tensorflow as tf


def shuffles_without_seed(dataset: tf.data.Dataset) -> bool:
    """Whether a dataset, or one that it is made of, shuffles without a seed, as far as is known.

    What the functions of flat_map and the like make is not looked at.
    """
    left, seen = [dataset], set[tf.data.Dataset]()
    while left:
        one = left.pop()
        if one in seen:
            continue
        seen.add(one)
        if 'Shuffle' in type(one).__name__:
            # TensorFlow has no public way to them. Two zeros mean that the op draws its own seed.
            seeds = [getattr(one, '_seed', None), getattr(one, '_seed2', None)]
            values = [None if seed is None else tf.get_static_value(seed) for seed in seeds]
            if all(value is not None and not int(value) for value in values):
                return True
        left += one._inputs()
    return False
