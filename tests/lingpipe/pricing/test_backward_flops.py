"""Backward FLOPs: the products that the backward of a layer has, counted by hand."""
from __future__ import annotations

import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers.base import Layer
from lingpipe.layers.low_rank import Adapters
from lingpipe.pricing import BackwardFlops, backward_flops

X = {'x': tf.TensorSpec([4, 8])}
PRODUCT = 2 * 4 * 8 * 16   # [4, 8] @ [8, 16], and each of its two gradients


def dense(**values) -> Layer:
    return layers.Dense.Params(input_dim=8, units=16, use_bias=False, **values).instantiate('dense')


@pytest.mark.parametrize(('trained', 'num_products'), [(['dense/w'], 2), ([], 1)])
def test_a_frozen_projection_needs_the_gradient_of_its_input_only(trained, num_products):
    assert backward_flops(dense(), X, trained) == BackwardFlops(
        whole=2 * PRODUCT, trained=num_products * PRODUCT, inputs=PRODUCT,
        weights=(num_products - 1) * PRODUCT)


def test_the_gradients_of_adapters_are_narrow_products_in_place_of_one_of_the_whole_weight():
    adapted = dense(adapters=Adapters(rank=2, alpha=2))
    flops = backward_flops(adapted, X, ['dense/w_adapter/a', 'dense/w_adapter/b'])
    of_a, of_b = 2 * 4 * 8 * 2, 2 * 4 * 2 * 16
    assert flops.whole - flops.trained == PRODUCT
    assert flops.trained - flops.inputs == of_a + of_b


def test_what_two_gradients_need_counts_once():
    class Squared(Layer):
        """tanh(x @ w), whose two gradients both start from that of the product."""

        def __init__(self, params: Layer.Params, path: str = ''):
            super().__init__(params, path)
            self.add_weight('w', [8, 16])

        def fprop(self, theta, ctx, x):
            return tf.tanh(x @ theta.w)

    flops = backward_flops(Squared.Params().instantiate('squared'), X, ['squared/w'])
    of_tanh = flops.whole - 2 * PRODUCT
    assert 0 < of_tanh < PRODUCT
    assert flops.trained == flops.whole
    assert flops.inputs == flops.weights == PRODUCT + of_tanh


def test_integers_have_no_gradient():
    table = layers.Embedding.Params(vocab_size=5, dim=3, is_scaled=True).instantiate('table')
    flops = backward_flops(table, {'ids': tf.TensorSpec([2, 6], tf.int32)}, [])
    assert flops.whole > 0 and flops.trained == flops.inputs == 0
