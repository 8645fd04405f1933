"""Embedding and PositionEmbedding: rows, dense gradients, tied weights, the paper's sinusoids."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers import Embedding, Logits, PositionEmbedding, Sequential
from lingpipe.layers.context import Context
from lingpipe.layers.nested import NestedMap


def test_rows_of_the_table_come_out_scaled_and_in_the_dtype_asked_for() -> None:
    layer = Embedding.Params(vocab_size=3, dim=4, is_scaled=True, dtype='bfloat16').instantiate()
    table = tf.reshape(tf.range(12, dtype=tf.float32), [3, 4])
    y = layer.fprop(NestedMap(w=table), Context(), tf.constant([[2, 0]]))
    assert y.dtype == tf.bfloat16
    np.testing.assert_array_equal(tf.cast(y, tf.float32), [[[16, 18, 20, 22], [0, 2, 4, 6]]])


def test_the_gradient_becomes_dense_and_adds_up_repeated_ids() -> None:
    layer = Embedding.Params(vocab_size=3, dim=2).instantiate()
    w = tf.zeros([3, 2])
    with tf.GradientTape() as tape:
        tape.watch(w)
        y = layer.fprop(NestedMap(w=w), Context(), tf.constant([1, 1, 2]))
    np.testing.assert_array_equal(tf.convert_to_tensor(tape.gradient(y, w)),
                                  [[0, 0], [2, 2], [1, 1]])


def test_logits_share_the_table_of_the_embedding() -> None:
    network = Sequential.Params(name='net', layers=(
        Embedding.Params(name='embedding', vocab_size=5, dim=3, reads={'ids': 'tokens'}),
        Logits.Params(input_dim=3, vocab_size=5, transpose_w=True, use_bias=False,
                      share={'w': 'net/embedding/w'}))).instantiate()
    owned, shared = network.weights()
    assert (shared.shape, shared.shared_with, network.num_weights) == (owned.shape, owned.path, 15)


def test_sinusoids_are_the_paper_s() -> None:
    y = PositionEmbedding.Params(dim=4).instantiate().fprop(
        NestedMap(), Context(), tf.zeros([1, 3, 4]))
    np.testing.assert_allclose(
        y[0], [[np.sin(t), np.sin(t / 1e4), np.cos(t), np.cos(t / 1e4)] for t in range(3)],
        atol=1e-6)


def test_more_positions_than_were_learned_are_refused() -> None:
    layer = PositionEmbedding.Params(dim=4, kind='learned', max_length=2).instantiate()
    with pytest.raises(ValueError, match='x has 3 positions, but max_length=2 were learned; raise '
                                         'max_length or cut the sequences'):
        layer.cost(tf.TensorSpec([1, 3, 4]))


def test_a_float_that_is_no_whole_number_is_no_id() -> None:
    layer = Embedding.Params(vocab_size=3, dim=1).instantiate()
    theta = NestedMap(w=tf.constant([[1.], [2.], [3.]]))
    assert layer.fprop(theta, Context(), tf.constant([2., 0.])).numpy().tolist() == [[3.], [1.]]
    with pytest.raises(tf.errors.InvalidArgumentError):   # The pipeline then says which it is.
        layer.fprop(theta, Context(), tf.constant([2., 0.7]))


def test_positions_may_begin_at_another_number() -> None:
    """fairseq counts from the id of padding and 1."""
    whole = PositionEmbedding.Params(dim=6).instantiate()
    later = PositionEmbedding.Params(dim=6, first=2).instantiate()
    x = tf.zeros([1, 5, 6])
    np.testing.assert_array_equal(later.fprop(NestedMap(), Context(), x[:, :3]),
                                  whole.fprop(NestedMap(), Context(), x)[:, 2:])
    with pytest.raises(ValueError, match='first=2, but learned positions begin at the first row'):
        PositionEmbedding.Params(dim=6, kind='learned', max_length=4, first=2).validate()
