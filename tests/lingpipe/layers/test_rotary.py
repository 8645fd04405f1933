"""Rotary positions against complex numbers, and what they promise of scores."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers.rotary import RotaryScaling, rotate, rotations


def rotated(x: np.ndarray, positions: list[int]) -> np.ndarray:
    return rotate(tf.constant(x), *rotations(tf.constant(positions), x.shape[-1], 100.)).numpy()


def test_pairs_of_channels_turn_as_complex_numbers_do() -> None:
    x = np.random.default_rng(0).normal(size=[3, 6]).astype(np.float32)
    positions = [0, 7, 3]
    angles = np.array(positions)[:, np.newaxis] / 100. ** (2 * np.arange(3) / 6)
    expected = (x[:, :3] + 1j * x[:, 3:]) * np.exp(1j * angles)
    np.testing.assert_allclose(rotated(x, positions),
                               np.concatenate([expected.real, expected.imag], -1), atol=1e-5)


def test_the_product_of_query_and_key_depends_on_their_distance_alone() -> None:
    q, k = np.random.default_rng(1).normal(size=[2, 1, 8]).astype(np.float32)
    scores = [float(np.sum(rotated(q, [9 + shift]) * rotated(k, [4 + shift])))
              for shift in (0, 1, 30)]
    np.testing.assert_allclose(scores, scores[0], rtol=1e-4)


def test_slow_channels_turn_more_slowly_fast_ones_as_before_and_those_between_are_between() -> None:
    """At low=1 and high=3 turns in 2 pi 60 positions: periods above 60, and below 20."""
    scaling = RotaryScaling(factor=8., low=1., high=3., length=377)
    periods = [scaling.scaled(period) for period in (10., 19., 30., 61., 1000.)]
    assert periods == pytest.approx([10., 19., 30. / (0.5 / 8 + 0.5), 488., 8000.], rel=1e-4)


def test_all_channels_turn_more_slowly_with_a_linear_scaling() -> None:
    scaling = RotaryScaling(factor=8., is_linear=True)
    assert [scaling.scaled(period) for period in (1., 30., 1000.)] == [8., 240., 8000.]


def test_a_scaling_without_a_range_between_is_refused() -> None:
    with pytest.raises(ValueError, match=r'low=4\.0 is not below high=4\.0'):
        RotaryScaling(low=4.).validate()
