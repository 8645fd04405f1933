"""Convolutions and poolings: against a direct sum, and what happens at the borders."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers import AvgPool2D, Conv2D, DepthwiseConv2D, MaxPool2D, Reshape, SeparableConv2D
from lingpipe.layers.context import Context
from lingpipe.layers.nested import NestedMap


def direct_convolution(x: np.ndarray, w: np.ndarray, stride: int | tuple[int, int],
                       dilation: int) -> np.ndarray:
    """Computes a convolution with valid padding, one output pixel after the other."""
    kh, kw = (w.shape[0] - 1) * dilation + 1, (w.shape[1] - 1) * dilation + 1
    down, across = (stride, stride) if isinstance(stride, int) else stride
    rows, columns = range(0, x.shape[1] - kh + 1, down), range(0, x.shape[2] - kw + 1, across)
    return np.stack([
        np.stack([
            np.einsum('bhwc,hwcf->bf', x[:, i:i + kh:dilation, j:j + kw:dilation], w)
            for j in columns], 1)
        for i in rows], 1)


@pytest.mark.parametrize('stride, dilation', [(1, 1), (2, 1), (1, 2), ((1, 2), 1), ((3, 2), 1)])
def test_a_convolution_is_a_sum_over_windows(stride: int | tuple[int, int], dilation: int) -> None:
    layer = Conv2D.Params(input_dim=3, filters=4, strides=stride, dilation=dilation,
                          padding='valid', use_bias=False).instantiate()
    theta = layer.initial_theta()
    x = np.random.default_rng(0).normal(size=[2, 9, 8, 3]).astype(np.float32)
    expected = direct_convolution(x, theta.w.numpy(), stride, dilation)
    np.testing.assert_allclose(layer.fprop(theta, Context(), tf.constant(x)), expected, atol=1e-5)


def test_a_separable_convolution_is_a_convolution_of_rank_one_kernels() -> None:
    layer = SeparableConv2D.Params(input_dim=3, filters=4, padding='valid', use_bias=False,
                                   multiplier=2).instantiate()
    theta = layer.initial_theta()
    x = np.random.default_rng(0).normal(size=[2, 5, 5, 3]).astype(np.float32)
    w = np.einsum('hwcm,cmf->hwcf', theta.w_depthwise, tf.reshape(theta.w_pointwise, [3, 2, 4]))
    np.testing.assert_allclose(layer.fprop(theta, Context(), tf.constant(x)),
                               direct_convolution(x, w, 1, 1), atol=1e-5)


def test_the_mean_of_a_window_leaves_out_what_is_beyond_the_border() -> None:
    x = tf.ones([1, 4, 4, 1])
    y = AvgPool2D.Params(pool_size=(3, 3), strides=1).instantiate().fprop(NestedMap(), Context(), x)
    np.testing.assert_array_equal(y, x)


def test_the_maximum_of_a_window_leaves_it_out_too() -> None:
    x = -tf.ones([1, 4, 4, 1])
    np.testing.assert_array_equal(
        MaxPool2D.Params(pool_size=(3, 3), strides=1).instantiate().fprop(
            NestedMap(), Context(), x),
        x)


def test_a_pair_of_equal_strides_is_one_stride() -> None:
    x = tf.constant(np.random.default_rng(0).normal(size=[2, 7, 6, 3]), tf.float32)
    for layer in (Conv2D, SeparableConv2D):
        one, pair = (layer.Params(input_dim=3, filters=4, strides=strides).instantiate('conv')
                     for strides in (2, (2, 2)))
        np.testing.assert_array_equal(
            *(c.fprop(c.initial_theta(), Context(), x) for c in (one, pair)))


def test_strides_are_read_from_text_as_a_number_or_a_pair() -> None:
    params = Conv2D.Params(input_dim=1, filters=1)
    assert params.override('strides', '2').strides == 2
    assert params.override('strides', '2,1').strides == (2, 1)


@pytest.mark.parametrize(
    'layer', [DepthwiseConv2D.Params(input_dim=4), SeparableConv2D.Params(input_dim=4, filters=4)])
def test_a_depthwise_convolution_refuses_strides_that_differ(layer: Any) -> None:
    # Without this check, the first step would fail, on a CPU alone: 'Current implementation only
    # supports equal length strides in the row and column dimensions'.
    with pytest.raises(ValueError, match=r"strides=\(2, 1\) of a depthwise convolution: "
                                         r"TensorFlow's kernels need the same number down and "
                                         r'across; use strides=2, or a Conv2D'):
        layer.copy().set(strides=(2, 1)).instantiate()


@pytest.mark.parametrize('strides', [0, (1, -2)])
def test_strides_below_1_are_refused(strides: int | tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r'strides.*=(0|-2) is below 1; use 1 or more'):
        Conv2D.Params(input_dim=1, filters=1, strides=strides)


# First values.

def test_the_fan_out_initializer_keeps_the_variance_of_gradients() -> None:
    layer = Conv2D.Params(input_dim=8, filters=512,
                          kernel_initializer='he_normal_fan_out').instantiate()
    w = layer.initial_theta(0).w.numpy()
    assert w.std() == pytest.approx((2 / (3 * 3 * 512)) ** 0.5, rel=0.02)
    assert not np.array_equal(w, layer.initial_theta(1).w)   # The seed of the experiment counts.


def test_an_unknown_initializer_is_refused_before_anything_is_made() -> None:
    with pytest.raises(ValueError,
                       match="'he' is no initializer; write he_normal, he_normal_fan_out"):
        Conv2D.Params(input_dim=1, filters=1, kernel_initializer='he').instantiate()


def test_strides_and_dilation_exclude_each_other() -> None:
    with pytest.raises(
            ValueError,
            match='strides=2 and dilation=2: only one of them can be above 1; set the other to 1'):
        Conv2D.Params(input_dim=1, filters=1, strides=2, dilation=2).instantiate()


def test_an_unknown_padding_is_refused() -> None:
    with pytest.raises(ValueError, match="padding='SAME' is unknown; write 'same' or 'valid'"):
        AvgPool2D.Params(padding='SAME').instantiate()


def test_a_reshape_keeps_the_number_of_elements() -> None:
    with pytest.raises(ValueError, match=r'net.r: an example of x is \[4, 4\], which is no \[3, '
                                         r'5\]: the products must be equal'):
        Reshape.Params(shape=(3, 5)).instantiate('net.r').cost(tf.TensorSpec([2, 4, 4]))
