"""Narrow weights: those that are only cast, of functions that do not look at their dtype."""
from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from lingpipe.pipeline.decoding.narrow_weights import narrow_weights

WEIGHTS = {'w': tf.TensorSpec([3, 3]), 'b': tf.TensorSpec([3])}
INPUTS = [[tf.TensorSpec([2, 3], tf.bfloat16)]]


def found(end: Callable[[tf.Tensor, tf.Tensor], object]) -> dict[str, tf.DType]:
    """The narrow weights of a product that `end`, a function of it and the weight, follows."""
    def function(weights: dict[str, tf.Tensor], inputs: list[tf.Tensor]) -> None:
        y = tf.matmul(inputs[0], tf.cast(weights['w'], tf.bfloat16))
        end(y + tf.cast(weights['b'], y.dtype), weights['w'])

    return narrow_weights(function, WEIGHTS, INPUTS)


def test_a_weight_is_narrow_if_it_is_only_cast() -> None:
    assert found(lambda y, w: y) == {'w': tf.bfloat16, 'b': tf.bfloat16}
    assert found(lambda y, w: tf.cast(w, tf.bfloat16)) == {'w': tf.bfloat16, 'b': tf.bfloat16}
    assert found(lambda y, w: tf.cast(w, tf.float16)) == {'b': tf.bfloat16}
    assert found(lambda y, w: tf.gather(w, [0])) == {'b': tf.bfloat16}


def test_no_weight_is_narrow_if_the_function_looks_at_a_dtype() -> None:
    """A layer that returned its result in the dtype of a weight was decoded with other numbers."""
    assert found(lambda y, w: tf.cast(y, w.dtype)) == {}
    assert found(lambda y, w: y * tf.constant(w.dtype.max / 1e38, y.dtype)) == {}
    assert found(lambda y, w: tf.add(tf.zeros([2, 3]), tf.cast(y, w.dtype))) == {}
    assert found(lambda y, w: tf.map_fn(
        lambda row: tf.cast(tf.sin(tf.cast(row, w.dtype)), row.dtype), y)) == {}


def test_a_loop_that_does_not_look_at_a_dtype_is_the_same_in_each_trace() -> None:
    assert len(found(lambda y, w: tf.map_fn(tf.sin, y))) == 2
