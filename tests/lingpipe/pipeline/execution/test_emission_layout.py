"""Emission layout: what cells emit, as vectors, and how vectors of moments are merged."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers.context import Context
from lingpipe.pipeline.execution.emission_layout import EmissionLayout


def emitted(rows: np.ndarray, ctx: Context | None = None) -> Context:
    """A context to which a layer like BatchNorm has given the moments of its rows, [n, D]."""
    ctx = ctx or Context(training=True)
    mean, variance = rows.mean(0), rows.astype(np.float64).var(0)
    ctx.emit_moments('model/bn', 'moments', tf.constant(mean, tf.float32),
                     tf.constant(variance, tf.float32), float(len(rows)))
    return ctx


def merged_moments(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    emissions = [emitted(rows).emissions for rows in parts]
    layout = EmissionLayout.of(emissions[0])
    total = tf.zeros([layout.num_averages])   # A reset leaves it so.
    for one in emissions:
        total = layout.merged_averages(total, layout.averages(one))
    mean, variance = layout.unpacked(None, total, {}).moments['model/bn', 'moments']
    return mean.numpy(), variance.numpy()


@pytest.mark.parametrize('sizes', [(8,), (4, 4), (1, 2, 13), (5, 1, 1, 9)])
def test_merged_moments_are_those_of_all_rows(sizes):
    rows = np.random.default_rng(0).standard_normal((sum(sizes), 3)).astype(np.float32)
    mean, variance = merged_moments(np.split(rows, np.cumsum(sizes)[:-1]))
    np.testing.assert_allclose(mean, rows.mean(0), atol=1e-6)
    np.testing.assert_allclose(variance, rows.astype(np.float64).var(0), rtol=1e-5)


def test_a_large_mean_costs_no_digits_of_the_variance():
    """In float32, E[x^2] - E[x]^2 would lose all digits."""
    rows = np.random.default_rng(0).standard_normal((32, 3)) + 1e4
    mean, variance = merged_moments(np.split(rows, 4))
    np.testing.assert_allclose(mean, rows.mean(0), rtol=1e-6)
    np.testing.assert_allclose(variance, rows.var(0), rtol=1e-3)


def test_moments_of_no_weight_change_nothing():
    rows = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
    emissions = emitted(rows).emissions
    layout = EmissionLayout.of(emissions)
    once = layout.merged_averages(tf.zeros([layout.num_averages]), layout.averages(emissions))
    again = layout.merged_averages(once, tf.zeros_like(once))
    np.testing.assert_array_equal(again, once)


def test_means_are_weighted():
    values, weights = [np.array([1., 5.]), np.array([4., 8.])], [1., 2.]
    emissions = []
    for value, weight in zip(values, weights, strict=True):
        ctx = Context(training=True)
        ctx.emit_mean('model/a', 'mean', tf.constant(value, tf.float32), weight)
        emissions.append(ctx.emissions)
    layout = EmissionLayout.of(emissions[0])
    total = layout.merged_averages(*[layout.averages(one) for one in emissions])
    np.testing.assert_allclose(layout.unpacked(None, total, {}).means['model/a', 'mean'], [3., 7.])


def test_everything_that_was_packed_comes_back_under_its_key():
    ctx = Context(training=True)
    ctx.emit_loss('model/loss', 'loss', tf.constant(1.), tf.constant(2.))
    ctx.emit_loss('model/l2', 'penalty', tf.constant(3.))
    ctx.emit_metric('model/loss', 'accuracy', tf.constant(4.), tf.constant(5.))
    ctx.emit_mean('model/a', 'mean', tf.reshape(tf.range(6.), [2, 3]))
    emitted(np.array([[1., 2.], [3., 6.]]), ctx)
    ctx.emit_state('model/b', 'count', tf.constant([7, 8]))
    layout = EmissionLayout.of(ctx.emissions)

    assert layout.num_scalars == 2 + 1 + 2
    assert layout.num_averages == 6 + 2 + 2 + 2
    merged = layout.unpacked(layout.scalars(ctx.emissions), layout.averages(ctx.emissions),
                             ctx.emissions.states)
    assert {key: float(value) for key, value in merged.losses.items()} == {
        ('model/loss', 'loss'): 1., ('model/l2', 'penalty'): 3.}
    assert float(merged.weights['model/loss', 'loss']) == 2.
    assert [float(t) for t in merged.metrics['model/loss', 'accuracy']] == [4., 5.]
    np.testing.assert_array_equal(merged.means['model/a', 'mean'], [[0, 1, 2], [3, 4, 5]])
    mean, variance = merged.moments['model/bn', 'moments']
    np.testing.assert_array_equal(mean, [2., 4.])
    np.testing.assert_array_equal(variance, [1., 4.])
    np.testing.assert_array_equal(merged.states['model/b', 'count'], [7, 8])


def test_a_layout_is_a_value():
    rows = np.ones((4, 3), np.float32)
    one, same = (EmissionLayout.of(emitted(rows).emissions) for _ in range(2))
    assert one == same
    assert one != EmissionLayout.of(emitted(rows[:, :2]).emissions)
