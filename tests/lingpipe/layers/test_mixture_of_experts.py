"""Mixture of experts against a loop over tokens, its causality, its auxiliary loss, decoding."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers import MixtureOfExperts
from lingpipe.layers.context import Context, DecodingContext
from lingpipe.layers.nested import NestedMap

B, T, D, F, E = 2, 6, 4, 5, 3


def made(**fields: Any) -> tuple[Any, Any, np.ndarray]:
    layer = MixtureOfExperts.Params(input_dim=D, hidden_dim=F, num_experts=E,
                                    **fields).instantiate()
    theta = NestedMap({w.path.split('/')[1]: w.initial_value(2) for w in layer.weights()})
    return layer, theta, np.random.default_rng(0).normal(size=[B, T, D]).astype(np.float32)


def token_by_token(theta: Any, x: np.ndarray, k: int, capacity: int,
                   normalises_gates: bool = True) -> np.ndarray:
    w = {name: value.numpy().astype(np.float64) for name, value in theta.items()}
    y = np.zeros([B, T, D])
    for i in range(B):
        room = [capacity] * E
        for t in range(T):
            scores = np.exp(x[i, t] @ w['router'])
            probabilities = scores / scores.sum()
            chosen = np.argsort(-probabilities, kind='stable')[:k]
            total = probabilities[chosen].sum() if k > 1 and normalises_gates else 1.
            for e in chosen:
                if room[e]:
                    gate = x[i, t] @ w['w_gate'][e]
                    hidden = gate / (1 + np.exp(-gate)) * (x[i, t] @ w['w_up'][e])
                    y[i, t] += probabilities[e] / total * (hidden @ w['w_down'][e])
                room[e] = max(0, room[e] - 1)
    return y


def test_a_capacity_without_a_rest_is_not_rounded_up() -> None:
    layer, _, _ = made(num_chosen=1, capacity_factor=1.1)
    assert layer.capacity(90) == 33   # 90 * 1.1 / 3 is 33.00000000000001


def test_each_token_gets_its_experts_until_these_are_full() -> None:
    for k, factor, capacity in (1, 0.5, 1), (2, 0.75, 3), (2, 9., T):
        layer, theta, x = made(num_chosen=k, capacity_factor=factor)
        assert layer.capacity(T) == capacity
        np.testing.assert_allclose(layer.fprop(theta, Context(), tf.constant(x)),
                                   token_by_token(theta, x, k, capacity), atol=1e-5)


def test_without_a_capacity_each_token_gets_all_its_experts() -> None:
    for fields in {}, {'normalises_gates': False}:
        layer, theta, x = made(num_chosen=2, capacity_factor=0., **fields)
        np.testing.assert_allclose(layer.fprop(theta, Context(), tf.constant(x)),
                                   token_by_token(theta, x, 2, T, **fields), atol=1e-5)


def test_later_tokens_change_nothing_though_experts_are_full() -> None:
    layer, theta, x = made(num_chosen=2, capacity_factor=0.5)
    before = layer.fprop(theta, Context(), tf.constant(x))
    x[:, 4:] += 3.
    np.testing.assert_array_equal(layer.fprop(theta, Context(), tf.constant(x))[:, :4],
                                  before[:, :4])


def test_one_position_has_room_for_every_token() -> None:
    layer, theta, x = made(num_chosen=2, capacity_factor=9.)
    ctx = DecodingContext(tf.constant(0), T, 1, T)
    y, _ = layer.decode(theta, ctx, NestedMap(), NestedMap(), tf.constant(x))
    np.testing.assert_allclose(y, layer.fprop(theta, Context(), tf.constant(x)), atol=1e-5)


def test_the_auxiliary_loss_counts_each_sequence_by_its_tokens() -> None:
    """With equal probabilities all tokens choose expert 0, so that E * (1 * 1/E) remains."""
    layer, theta, x = made(balance=0.5)
    theta.router = tf.zeros([D, E])
    weight = np.ones([B, T], np.float32)
    weight[1, 2:] = 0
    for training, expected in (True, 0.5 * (6 + 2)), (False, None):
        ctx = Context(training)
        layer.fprop(theta, ctx, tf.constant(x), tf.constant(weight))
        losses = {key[1]: float(value) for key, value in ctx.emissions.losses.items()}
        assert losses == ({} if expected is None else {'balance': expected})


@pytest.mark.parametrize('capacity_factor, left_out', [(1., {'left_out': (4, 8)}), (0., {})])
def test_an_evaluation_says_how_even_the_load_is(
        capacity_factor: float, left_out: dict[str, Any]) -> None:
    """All tokens choose expert 0, which has room for 2 of the 6, or for all."""
    layer, theta, x = made(capacity_factor=capacity_factor)
    theta.router = tf.zeros([D, E])
    weight = np.ones([B, T], np.float32)
    weight[1, 2:] = 0
    ctx = Context(training=False)
    layer.fprop(theta, ctx, tf.constant(x), tf.constant(weight))
    metrics = {name: (float(value), float(total))
               for (_, name), (value, total) in ctx.emissions.metrics.items()}
    assert metrics == {**left_out, 'busiest': (3 * 8, 8)}
