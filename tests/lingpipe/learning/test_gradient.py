"""Gradients as rows are added, scaled and cast as the dense ones that they stand for."""
from __future__ import annotations

import numpy as np
import tensorflow as tf

from lingpipe.learning.gradient import added, cast, numbers, of_shape, scaled

ROWS = of_shape(tf.IndexedSlices(tf.constant([[1., 2.], [5., 6.], [3., 4.]]),
                                 tf.constant([0, 1, 0], tf.int64)), [3, 2])
DENSE = np.array([[4., 6.], [5., 6.], [0., 0.]], np.float32)


def test_rows_stay_rows_and_stand_for_their_sums():
    both = added(ROWS, ROWS)
    assert isinstance(both, tf.IndexedSlices) and numbers(both).shape == [6, 2]
    np.testing.assert_array_equal(tf.convert_to_tensor(both), 2 * DENSE)
    np.testing.assert_array_equal(tf.convert_to_tensor(scaled(ROWS, tf.constant(3., tf.float64))),
                                  3 * DENSE)
    assert cast(ROWS, tf.bfloat16).dtype == numbers(cast(DENSE, tf.bfloat16)).dtype == tf.bfloat16


def test_rows_and_a_dense_gradient_are_dense():
    for total in (added(ROWS, tf.constant(DENSE)), added(tf.constant(DENSE), ROWS)):
        assert tf.is_tensor(total) and not isinstance(total, tf.IndexedSlices)
        np.testing.assert_array_equal(total, 2 * DENSE)
