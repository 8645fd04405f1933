"""BatchNorm: statistics against NumPy, also far from zero, and moving averages."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers import BatchNorm
from lingpipe.layers.context import Context
from lingpipe.layers.nested import NestedMap


@pytest.mark.parametrize('jit_compile', [False, True])
@pytest.mark.parametrize('mean', [0., 1e2, 1e4])
@pytest.mark.parametrize('shape', [(8, 6, 5, 3), (64, 3), (8, 10, 3)])
def test_moments_are_numpy_s_however_far_from_zero(shape: tuple[int, ...], mean: float,
                                                   jit_compile: bool) -> None:
    """At 1e4 +- 1, E[x^2] - E[x]^2 has no correct digit of the variance.

    torchgpipe, Lingvo and XLA compute it in that way.
    """
    x = (mean + np.random.default_rng(0).normal(size=shape)).astype(np.float32)
    rows = x.reshape(-1, 3).astype(np.float64)
    layer = BatchNorm.Params(dim=3, epsilon=1e-3).instantiate()
    theta = layer.initial_theta()

    @tf.function(jit_compile=jit_compile, autograph=False)
    def run() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        ctx = Context(training=True)
        return (layer.fprop(theta, ctx, tf.constant(x)),
                *ctx.emissions.moments['batchnorm', 'moments'][:2])

    y, found_mean, found_variance = run()
    np.testing.assert_allclose(found_mean, rows.mean(0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found_variance, rows.var(0), rtol=1e-4)
    np.testing.assert_allclose(y,
                               ((rows - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-3)).reshape(shape),
                               atol=2e-3 if mean > 1e3 else 1e-4)


@pytest.mark.parametrize('mean', [0., 1e2, 1e4])
@pytest.mark.parametrize('shape', [(8, 6, 5, 3), (64, 3)])
def test_replicas_with_equal_rows_normalise_as_one_alone(
        shape: tuple[int, ...], mean: float) -> None:
    """With two equal replicas, y, moments and all gradients are those of one replica alone."""
    rng = np.random.default_rng(0)
    x, dy = (tf.constant(mean + rng.normal(size=shape), tf.float32),
             tf.constant(rng.normal(size=shape), tf.float32))

    layer = BatchNorm.Params(dim=3, epsilon=1e-3).instantiate()
    theta = NestedMap(layer.initial_theta(), scale=tf.constant([2., 1., .5]),
                      offset=tf.constant([0., 5., 1.]))

    found = []
    for gather in (None, lambda value: tf.stack([value, value])):
        ctx = Context(training=True, gather=gather)
        with tf.GradientTape() as tape:
            sources = [x, theta.scale, theta.offset]
            tape.watch(sources)
            y = layer.fprop(theta, ctx, x)
        found.append([y, *ctx.emissions.moments['batchnorm', 'moments'][:2],
                      *tape.gradient(y, sources, dy)])

    tolerance = 2e-3 if mean > 1e3 else 1e-4
    for one, both in zip(*found, strict=True):
        np.testing.assert_allclose(both, one, rtol=tolerance, atol=10 * tolerance)


def test_over_replicas_a_bfloat16_stays_one() -> None:
    layer = BatchNorm.Params(dim=2).instantiate()
    x = tf.constant([[1., 2.], [3., 6.]], tf.bfloat16)
    ctx = Context(training=True, gather=lambda value: tf.stack([value, value]))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer.fprop(layer.initial_theta(), ctx, x)
    assert y.dtype == tape.gradient(y, x).dtype == tf.bfloat16
    np.testing.assert_allclose(tf.cast(y, tf.float32), [[-1, -1], [1, 1]], atol=1e-2)


def test_one_row_has_variance_0() -> None:
    layer = BatchNorm.Params(dim=2).instantiate()
    ctx = Context(training=True)
    layer.fprop(layer.initial_theta(), ctx, tf.constant([[3., 4.]]))
    mean, variance, _ = ctx.emissions.moments['batchnorm', 'moments']
    np.testing.assert_array_equal(mean, [3, 4])
    np.testing.assert_array_equal(variance, [0, 0])


def test_evaluation_uses_the_moving_averages_and_emits_nothing() -> None:
    layer = BatchNorm.Params(dim=2, epsilon=0.).instantiate()
    theta = NestedMap(scale=tf.constant([2., 1.]), offset=tf.constant([0., 5.]),
                      moving_mean=tf.constant([1., 2.]), moving_variance=tf.constant([4., 9.]))
    ctx = Context()
    np.testing.assert_allclose(layer.fprop(theta, ctx, tf.constant([[3., 8.]])), [[2., 7.]])
    assert not ctx.emissions.moments


def test_moving_averages_move_by_one_minus_decay() -> None:
    layer = BatchNorm.Params(dim=1, decay=0.75).instantiate()
    state = NestedMap(moving_mean=tf.constant([4.]), moving_variance=tf.constant([8.]))
    new = layer.updated_state('moments', state, (tf.constant([8.]), tf.constant([0.])))
    assert {name: float(value[0]) for name, value in new.items()} == {
        'moving_mean': 5., 'moving_variance': 6.}


def test_moving_averages_are_no_parameters() -> None:
    layer = BatchNorm.Params(dim=7).instantiate()
    assert layer.num_weights == 14
    assert [w.path for w in layer.weights() if not w.is_trainable] == [
        'batchnorm/moving_mean', 'batchnorm/moving_variance']


@pytest.mark.parametrize('pixel', [0., 10., 100.])
def test_in_bfloat16_an_unusual_first_pixel_costs_no_precision(pixel: float) -> None:
    """It was subtracted in bfloat16: with 10, the output had an error of 0.018."""
    rows = np.random.default_rng(0).normal(size=[4, 16, 16, 3])
    rows[0, 0, 0] = pixel
    x = tf.cast(rows, tf.bfloat16)
    layer = BatchNorm.Params(dim=3).instantiate()
    y = tf.cast(layer.fprop(layer.initial_theta(), Context(training=True), x), tf.float64)
    exact = tf.cast(x, tf.float64).numpy()
    moments = exact.mean((0, 1, 2)), np.sqrt(exact.var((0, 1, 2)) + layer.params.epsilon)
    error = y - (exact - moments[0]) / moments[1]
    assert np.sqrt(np.mean(error ** 2)) < 0.003
