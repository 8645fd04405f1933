"""Learned positions: row by position, of a whole sequence, of documents, and of what is decoded."""
from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers import LearnedPositions
from lingpipe.layers.context import Context, DecodingContext
from lingpipe.layers.nested import NestedMap

TABLE = np.arange(12, dtype=np.float32).reshape([6, 2])
LAYER = LearnedPositions.Params(dim=2, num_positions=6).instantiate('positions')
THETA = NestedMap(w=tf.constant(TABLE))
EMPTY = NestedMap()


def decoding(position: int, starts: list[int] | None = None, max_length: int = 6
             ) -> DecodingContext:
    return DecodingContext(tf.constant(position), 2, 1, max_length,
                           None if starts is None else tf.constant(starts))


def test_positions_count_from_0_or_are_those_of_the_network() -> None:
    x = tf.ones([2, 4, 2])
    np.testing.assert_array_equal(LAYER.fprop(THETA, Context(), x), 1 + TABLE[[0, 1, 2, 3]] + [[
        [0, 0]]] * 2)
    places = [[0, 1, 0, 1], [3, 4, 5, 0]]
    for dtype in (tf.int32, tf.uint8):
        y = LAYER.fprop(THETA, Context(), x, positions=tf.constant(places, dtype))
        np.testing.assert_array_equal(y, 1 + TABLE[np.array(places)])


def test_what_is_decoded_has_the_positions_of_its_sentence() -> None:
    x = tf.zeros([3, 2, 2])   # 3 sentences of 2 hypotheses
    y, _ = LAYER.decode(THETA, decoding(4), EMPTY, EMPTY, x)
    np.testing.assert_array_equal(y, np.broadcast_to(TABLE[4], [3, 2, 2]))
    y, _ = LAYER.decode(THETA, decoding(4, [0, 1, 3]), EMPTY, EMPTY, x)
    np.testing.assert_array_equal(y, np.repeat(TABLE[[4, 3, 1]][:, np.newaxis], 2, 1))
    # The first sentence has ended.
    y, _ = LAYER.decode(THETA, decoding(6, [0, 1, 3]), EMPTY, EMPTY, x)
    np.testing.assert_array_equal(y[1:], np.repeat(TABLE[[5, 3]][:, np.newaxis], 2, 1))


def test_prompts_with_padding_before_them_have_their_own_positions() -> None:
    x = tf.zeros([2, 3, 2])
    y, _ = LAYER.prefill(THETA, decoding(2), EMPTY, EMPTY, x)
    np.testing.assert_array_equal(y, np.broadcast_to(TABLE[2:5], [2, 3, 2]))
    y, _ = LAYER.prefill(THETA, decoding(2, [1, 3]), EMPTY, EMPTY, x)
    np.testing.assert_array_equal(y[0], TABLE[1:4])
    np.testing.assert_array_equal(y[1, 1:], TABLE[0:2])   # Its first place is padding.


def test_more_positions_than_were_learned_are_refused() -> None:
    with pytest.raises(ValueError, match=re.escape(
            'positions: x has 7 positions, but num_positions=6 were learned; cut the sequences.')):
        LAYER.fprop(THETA, Context(), tf.zeros([1, 7, 2]))
    with pytest.raises(ValueError, match='up to 7 positions are decoded, but num_positions=6 were'):
        LAYER.decode(THETA, decoding(0, max_length=7), EMPTY, EMPTY, tf.zeros([1, 2, 2]))
    assert LAYER.id_ranges(x=tf.TensorSpec([1, 3, 2]), positions=tf.TensorSpec([1, 3], tf.int32)
                           ) == {'positions': 6}
    assert LAYER.id_ranges(x=tf.TensorSpec([1, 3, 2])) == {}
