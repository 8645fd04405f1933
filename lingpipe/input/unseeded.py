"""Unseeded: datasets that shuffle in another order each time they are made."""
from __future__ import annotations

import tensorflow as tf


def shuffles_without_seed(dataset: tf.data.Dataset) -> bool:
    """Whether a dataset, or one that it is made of, shuffles without a seed.

    What the functions of flat_map and the like make is not looked at.
    """
    # TensorFlow has no public way to either. Two zeros mean that the op draws its own seed.
    seeds = [seed for seed in (getattr(dataset, '_seed', None), getattr(dataset, '_seed2', None))
             if seed is not None]
    if 'Shuffle' in type(dataset).__name__ and len(seeds) == 2 and not any(map(int, seeds)):
        return True
    return any(map(shuffles_without_seed, dataset._inputs()))
