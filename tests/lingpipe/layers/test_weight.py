"""Weight: initial values follow from seed and path, whatever makes them."""
from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers.weight import Weight, whole_numbers


class Drawn(keras.initializers.Initializer):
    """Draws numbers of a generator that nobody seeds."""

    def __call__(self, shape, dtype=None):
        return keras.random.normal(shape, dtype=dtype)


class Seeded(keras.initializers.Initializer):
    """Draws numbers with a seed."""

    def __init__(self, seed=None):
        self.seed = seed

    def __call__(self, shape, dtype=None):
        return keras.random.normal(shape, dtype=dtype, seed=self.seed)

    def get_config(self):
        return {'seed': self.seed}


@pytest.mark.parametrize('initializer', [Drawn(), lambda shape, dtype: Drawn()(shape, dtype)])
def test_an_initializer_whose_values_differ_from_call_to_call_is_refused(initializer):
    """Each start, and each number of cells, began with other weights."""
    weight = Weight('model/dense/w', (3,), initializer)
    with pytest.raises(ValueError, match='model/dense/w: its initializer gives other values in '
                                         'each call.*; let its __init__ take a seed'):
        weight.initial_value(0)


def test_an_own_initializer_with_a_seed_gets_one_of_the_experiment_and_the_path():
    first, again = (Weight('model/a', (3,), Seeded()).initial_value(0) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, Weight('model/a', (3,), Seeded()).initial_value(1))
    assert not np.array_equal(first, Weight('model/b', (3,), Seeded()).initial_value(0))


@pytest.mark.parametrize('initializer', [
    lambda shape, dtype: tf.range(3, dtype=dtype), np.arange(3, dtype=np.float32)])
def test_an_initializer_may_be_a_function_or_an_array(initializer):
    assert np.array_equal(Weight('model/w', (3,), initializer).initial_value(0), [0, 1, 2])


def test_a_negative_dimension_is_refused():
    with pytest.raises(ValueError, match=r"model: the shape of 'w' is \[-1, 3\], but must be"):
        whole_numbers('model', 'w', [-1, 3])
