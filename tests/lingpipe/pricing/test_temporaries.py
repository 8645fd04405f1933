"""Temporaries: the most bytes at a time, of graphs whose bytes can be counted by hand."""
from __future__ import annotations

from collections.abc import Iterator

import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.pricing import residuals_of_layer
from lingpipe.pricing.temporaries import most_bytes

ROW = 4 * 100   # the bytes of one tensor of 100 numbers


@pytest.fixture(name='x')
def placeholder() -> Iterator[tf.Tensor]:
    """A tensor that passes start from, in the graph in which a test builds one."""
    graph = tf.__internal__.FuncGraph('pass')
    with graph.as_default():
        yield tf.compat.v1.placeholder(tf.float32, [100])


def most(y: tf.Tensor, x: tf.Tensor, **others: object) -> float:
    """The most tensors at a time of a pass from x to y, where x is counted elsewhere."""
    return most_bytes([y], {x.name}, {x.name}, **others) / ROW


def test_a_chain_holds_what_an_op_reads_and_what_it_makes(x):
    assert most(tf.cumsum(tf.cumsum(tf.cumsum(x))), x) == 2


def test_what_the_pass_starts_from_counts_until_its_last_reader(x):
    y = tf.cumsum(tf.cumsum(tf.cumsum(x)))
    assert most_bytes([y], {x.name}, set()) / ROW == 2
    assert most_bytes([tf.cumsum(y) * x], {x.name}, set()) / ROW == 3


def test_an_op_by_elements_writes_into_a_free_input(x):
    y = tf.cumsum(x)
    assert most(tf.exp(tf.nn.relu(y * 2.)), x) == 1
    assert most(tf.exp(y) + y, x) == 2          # y is read again.
    assert most(tf.nn.relu(x), x) == 1          # x is not free.


def test_views_take_no_memory(x):
    y = tf.cumsum(x)
    assert most(tf.cumsum(tf.reshape(tf.identity(y), [10, 10])), x) == 2


def test_tensors_that_are_kept_do_not_count(x):
    kept = tf.cumsum(x)
    assert most_bytes([tf.cumsum(kept)], {x.name}, {x.name, kept.name}) / ROW == 1


def test_what_is_passed_on_is_free_at_once(x):
    sums = [tf.cumsum(x) for _ in range(4)]
    assert most_bytes(sums, {x.name}, {x.name}) / ROW == 4
    assert most_bytes([], {x.name}, {x.name}, sums) / ROW == 1


def test_a_view_that_is_passed_on_is_free_at_once_too(x):
    """The view, as that of a gradient whose shape is set last, was taken for a tensor of its own.

    It then counted beside what it views, and to the end of the pass.
    """
    sums = [tf.reshape(tf.cumsum(x), [10, 10]) for _ in range(4)]
    assert most_bytes([], {x.name}, {x.name}, sums) / ROW == 1


def test_a_loop_needs_what_a_turn_needs(x):
    def body(i: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return i + 1, y + tf.reduce_sum(tf.cumsum(tf.tile(y, [5])))

    _, y = tf.while_loop(lambda i, y: i < 9, body, (tf.constant(0), x), maximum_iterations=9)
    # Five for the tile and five for its running sum, one for what a turn and one for what the loop
    # returns, and a few numbers.
    assert most(y, x) == pytest.approx(11, abs=1.1)


def test_an_array_that_a_loop_fills_is_there_until_it_is_stacked(x):
    """Only the stack was counted, and not the tensors from which it is made."""
    def body(i: tf.Tensor, array: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        return i + 1, array.write(i, tf.cumsum(x))

    array = tf.TensorArray(tf.float32, 9, element_shape=[100])
    _, array = tf.while_loop(lambda i, array: i < 9, body, (tf.constant(0), array),
                             maximum_iterations=9)
    assert most(array.stack(), x) == pytest.approx(18, abs=0.1)


def test_nothing_needs_nothing():
    assert most_bytes([], set(), set()) == 0


def test_a_layer_needs_the_larger_of_its_passes():
    """The forward makes the output of relu, which is a residual, so that it is counted elsewhere.

    The backward takes the gradient of that, whose memory the gradient of relu uses again. At the
    end there are the gradient of the input beside it, and that of the weight.
    """
    dense = layers.Dense.Params(name='dense', input_dim=8, units=8, use_bias=False,
                                activation='relu').instantiate('dense')
    residuals = residuals_of_layer(dense, {'x': tf.TensorSpec([50, 8])}, ['dense/w'],
                                   lambda leaf: True, lambda leaf: True)
    assert residuals.temporary_bytes == 4 * (2 * 50 * 8 + 8 * 8)
