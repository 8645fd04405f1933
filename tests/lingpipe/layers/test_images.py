"""Convolutions and poolings: against a direct sum, and what the borders mean."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.context import Context
from lingpipe.layers import AvgPool2D, Conv2D, MaxPool2D, Reshape, SeparableConv2D
from lingpipe.nested import NestedMap


def direct_convolution(x: np.ndarray, w: np.ndarray, stride: int, dilation: int) -> np.ndarray:
    """Valid padding, one output pixel after the other."""
    kh, kw = (w.shape[0] - 1) * dilation + 1, (w.shape[1] - 1) * dilation + 1
    rows, columns = range(0, x.shape[1] - kh + 1, stride), range(0, x.shape[2] - kw + 1, stride)
    return np.stack([np.stack([np.einsum('bhwc,hwcf->bf', x[:, i:i + kh:dilation, j:j + kw:dilation], w) for j in columns], 1)
                     for i in rows], 1)


@pytest.mark.parametrize('stride, dilation', [(1, 1), (2, 1), (1, 2)])
def test_a_convolution_is_a_sum_over_windows(stride: int, dilation: int) -> None:
    layer = Conv2D.Params(input_dim=3, filters=4, strides=stride, dilation=dilation, padding='valid', use_bias=False).instantiate()
    theta = layer.initial_theta()
    x = np.random.default_rng(0).normal(size=[2, 9, 8, 3]).astype(np.float32)
    expected = direct_convolution(x, theta.w.numpy(), stride, dilation)
    np.testing.assert_allclose(layer.fprop(theta, Context(), tf.constant(x)), expected, atol=1e-5)


def test_a_separable_convolution_is_a_convolution_of_rank_one_kernels() -> None:
    layer = SeparableConv2D.Params(input_dim=3, filters=4, padding='valid', use_bias=False, multiplier=2).instantiate()
    theta = layer.initial_theta()
    x = np.random.default_rng(0).normal(size=[2, 5, 5, 3]).astype(np.float32)
    w = np.einsum('hwcm,cmf->hwcf', theta.w_depthwise, tf.reshape(theta.w_pointwise, [3, 2, 4]))
    np.testing.assert_allclose(layer.fprop(theta, Context(), tf.constant(x)), direct_convolution(x, w, 1, 1), atol=1e-5)


def test_the_mean_of_a_window_leaves_out_what_is_beyond_the_border() -> None:
    x = tf.ones([1, 4, 4, 1])
    y = AvgPool2D.Params(pool_size=(3, 3), strides=1).instantiate().fprop(NestedMap(), Context(), x)
    np.testing.assert_array_equal(y, x)


def test_the_maximum_of_a_window_leaves_it_out_too() -> None:
    x = -tf.ones([1, 4, 4, 1])
    np.testing.assert_array_equal(MaxPool2D.Params(pool_size=(3, 3), strides=1).instantiate().fprop(NestedMap(), Context(), x), x)


def test_strides_and_dilation_exclude_each_other() -> None:
    with pytest.raises(ValueError, match='strides=2 and dilation=2: only one of them can be above 1; set the other to 1'):
        Conv2D.Params(input_dim=1, filters=1, strides=2, dilation=2).instantiate()


def test_an_unknown_padding_is_refused() -> None:
    with pytest.raises(ValueError, match="padding='SAME' is unknown; write 'same' or 'valid'"):
        AvgPool2D.Params(padding='SAME').instantiate()


def test_a_reshape_keeps_the_number_of_elements() -> None:
    with pytest.raises(ValueError, match=r'net.r: an example of x is \[4, 4\], which is no \[3, 5\]: the products must be equal'):
        Reshape.Params(shape=(3, 5)).instantiate('net.r').cost(tf.TensorSpec([2, 4, 4]))
