"""Dropout: equal for equal seeds, different otherwise, with the right rate and expectation."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers import Dropout, DropPath, WordDropout
from lingpipe.layers.context import Context
from lingpipe.layers.dropout import drop
from lingpipe.layers.nested import NestedMap

X = tf.ones([64, 500])


def zeros(layer: Any, x: tf.Tensor = X, **where: int) -> np.ndarray:
    return layer.fprop(NestedMap(), Context(True, **where), x).numpy() == 0


@pytest.mark.parametrize('other', [{'experiment_seed': 1}, {'step': 1}, {'micro_batch': 1}])
def test_another_seed_step_or_micro_batch_drops_others(other: dict[str, int]) -> None:
    layer = Dropout.Params(rate=0.5).instantiate('a')
    assert np.mean(zeros(layer) != zeros(layer, **other)) == pytest.approx(0.5, abs=0.02)


def test_another_layer_drops_others() -> None:
    params = Dropout.Params(rate=0.5)
    assert (np.mean(zeros(params.instantiate('a')) != zeros(params.instantiate('b')))
            == pytest.approx(0.5, abs=0.02))


def test_the_same_place_drops_the_same_compiled_or_not() -> None:
    layer = Dropout.Params(rate=0.5).instantiate('a')
    found = [zeros(layer, step=3, micro_batch=2),
             zeros(layer, step=3, micro_batch=2),
             tf.function(lambda: layer.fprop(NestedMap(), Context(True, step=3, micro_batch=2), X),
                         jit_compile=True, autograph=False)().numpy() == 0]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize('rate', [0.1, 0.25, 0.9])
def test_the_rate_is_right_and_the_mean_is_kept(rate: float) -> None:
    y = Dropout.Params(rate=rate).instantiate('a').fprop(NestedMap(), Context(True), X).numpy()
    assert np.mean(y == 0) == pytest.approx(rate, abs=0.01)  # 4 standard deviations at most
    assert np.unique(y[y != 0]) == pytest.approx(1 / (1 - rate), rel=1e-4)


def test_neighbours_are_independent() -> None:
    """Two neighbours share a 32-bit word."""
    z = zeros(Dropout.Params(rate=0.5).instantiate('a')).astype(float).ravel()
    assert abs(np.corrcoef(z[::2], z[1::2])[0, 1]) < 0.03
    assert abs(np.corrcoef(z[:-2], z[2:])[0, 1]) < 0.03


def test_the_numbers_are_those_of_the_generator_of_tensorflow() -> None:
    seed = tf.constant([-3, 1 << 40], tf.int64)
    words = tf.random.stateless_uniform([50], seed, None, None, tf.int32, alg='philox')
    numbers = tf.reshape(tf.bitcast(words, tf.int16), [100])
    np.testing.assert_array_equal(drop(tf.ones([100]), 0.25, seed) != 0, numbers >= -(1 << 14))


def test_an_odd_number_of_elements_is_no_trouble() -> None:
    assert drop(tf.ones([3, 5]), 0.5, tf.constant([1, 2], tf.int64)).shape == [3, 5]


def test_paths_are_dropped_by_example() -> None:
    z = zeros(DropPath.Params(rate=0.5).instantiate('a'))
    assert np.all(z.all(1) | ~z.any(1)) and 0 < z[:, 0].sum() < 64


def test_words_are_dropped_whole() -> None:
    layer = WordDropout.Params(rate=0.5).instantiate('a')
    y = layer.fprop(NestedMap(), Context(training=True), tf.ones([4, 64, 3])).numpy()
    kept = y[:, :, 0] != 0
    np.testing.assert_allclose(y, np.repeat(kept[:, :, None], 3, 2) * 2., rtol=1e-4)
    assert 0.35 < kept.mean() < 0.65 and len({tuple(row) for row in kept}) == 4


@pytest.mark.parametrize('layer', [Dropout, DropPath, WordDropout])
def test_evaluation_and_rate_0_are_the_identity(layer: Any) -> None:
    assert layer.Params(rate=0.5).instantiate().fprop(NestedMap(), Context(), X) is X
    assert layer.Params(rate=0.).instantiate().fprop(NestedMap(), Context(True), X) is X


@pytest.mark.parametrize('rate, found',
                         [(-0.1, 'below 0'), (1., 'not below 1'), (float('nan'), 'not a number')])
def test_a_rate_that_is_none_is_refused(rate: float, found: str) -> None:
    with pytest.raises(ValueError, match=f'rate={rate} is {found}; use 0 or more and less than 1'):
        Dropout.Params(rate=rate)


def test_a_rate_close_to_1_drops_nearly_all() -> None:
    y = drop(tf.ones([100]), 0.999999, tf.constant([1, 2], tf.int64))
    assert np.isfinite(y).all()
