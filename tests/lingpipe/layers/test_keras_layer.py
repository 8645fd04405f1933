"""KerasLayer: Keras' own results, without Keras' state."""
from __future__ import annotations

import json
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lingpipe.context import Context
from lingpipe.layers import KerasLayer
from lingpipe.nested import NestedMap

X = np.random.default_rng(0).normal(size=[4, 6, 3]).astype(np.float32)


def made(class_name: str, shape: tuple[int, ...] = (6, 3), **config: Any) -> KerasLayer:
    return KerasLayer.Params(class_name=class_name, config=json.dumps(config), input_shape=shape).instantiate('k')


@pytest.mark.parametrize('class_name, config', [
    ('LSTM', {'units': 4}), ('Conv1D', {'filters': 5, 'kernel_size': 3}), ('BatchNormalization', {'momentum': 0.9}),
    ('Bidirectional', {'layer': keras.layers.serialize(keras.layers.GRU(2))})])
def test_training_gives_what_keras_gives(class_name: str, config: dict[str, Any]) -> None:
    layer = made(class_name, **config)
    theta = layer.initial_theta()
    original = getattr(keras.layers, class_name).from_config(config)
    original.build((None, 6, 3))
    original.set_weights([theta[name].numpy() for name in theta])
    ctx = Context(training=True)
    np.testing.assert_allclose(layer.fprop(theta, ctx, tf.constant(X)), original(X, training=True), atol=1e-6)
    after = dict(zip(theta, original.get_weights(), strict=True))
    updated = {}
    for (_, name), (mean, variance, _) in ctx.emissions.moments.items():
        updated.update(layer.updated_state(name, theta, (mean, variance)))
    assert set(updated) == {w.path.split('/')[1] for w in layer.weights() if not w.is_trainable}
    for name, value in updated.items():
        np.testing.assert_allclose(value, after[name], atol=1e-6)


def test_variables_have_no_memory() -> None:
    """40 GB would not fit."""
    layer = KerasLayer.Params(class_name='Dense', config='{"units": 100000}', input_shape=(100000,)).instantiate()
    assert layer.num_weights == 100000 * 100001


def test_weights_are_named_without_keras_process_wide_numbers() -> None:
    names = [[w.path for w in made('Bidirectional', layer=keras.layers.serialize(keras.layers.LSTM(2))).weights()] for _ in range(2)]
    assert names[0] == names[1] == ['k/kernel_0', 'k/recurrent_kernel_0', 'k/bias_0', 'k/kernel_1', 'k/recurrent_kernel_1', 'k/bias_1']


def test_first_values_are_keras_initializers_and_depend_on_the_seed() -> None:
    layer = made('LSTM', units=4)
    first, again, other = (layer.initial_theta(seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.kernel, again.kernel)
    assert np.all(first.kernel != other.kernel)
    np.testing.assert_array_equal(first.bias, [0] * 4 + [1] * 4 + [0] * 8)  # LSTM's forget gate begins open: an initializer of its own


def test_random_numbers_come_from_the_context() -> None:
    layer = made('Dropout', rate=0.5)
    found = [layer.fprop(NestedMap(), Context(True, step=1, micro_batch=m), tf.constant(X)).numpy() for m in (1, 1, 2)]
    np.testing.assert_array_equal(found[0], found[1])
    assert np.any(found[0] != found[2])
    np.testing.assert_array_equal(layer.fprop(NestedMap(), Context(), tf.constant(X)), X)


def test_two_draws_of_a_layer_differ_from_each_other_and_from_the_next_micro_batch() -> None:
    """With the position itself as Keras' seed, the second draw of micro-batch 0 would be the first of micro-batch 1."""
    @keras.saving.register_keras_serializable('lingpipe_tests')
    class TwoDraws(keras.layers.Layer):
        def __init__(self, **kwargs: Any):
            super().__init__(**kwargs)
            self.generator = keras.random.SeedGenerator(0)

        def call(self, x: Any) -> Any:
            return keras.ops.stack([keras.random.uniform(keras.ops.shape(x), seed=self.generator) for _ in range(2)])

    layer = made('lingpipe_tests>TwoDraws')
    a, b = (layer.fprop(NestedMap(), Context(True, micro_batch=m), tf.constant(X)).numpy() for m in (0, 1))
    draws = [a[0], a[1], b[0], b[1]]
    assert not any(np.any(draws[i] == draws[j]) for i in range(4) for j in range(i))


def test_regularizers_are_scaled_by_the_mean_weight_of_a_micro_batch() -> None:
    layer = made('Dense', units=2, kernel_regularizer={'class_name': 'L2', 'config': {'l2': 0.5}})
    theta, ctx = layer.initial_theta(), Context(True, mean_weight=6.)
    layer.fprop(theta, ctx, tf.constant(X))
    assert float(ctx.emissions.losses['k', 'loss']) == pytest.approx(6 * 0.5 * float(tf.reduce_sum(theta.kernel ** 2)))
    assert not ctx.emissions.weights


@pytest.mark.parametrize('params, message', [
    ({'class_name': 'Dens'}, "class_name='Dens' is no layer of Keras; write the name of a class in keras.layers"),
    ({'config': '{units: 3}'}, "config='{units: 3}' is no JSON .*; write an object like {\"units\": 64}"),
    ({'config': '[3]'}, r"config='\[3\]' is no JSON object"),
    ({'config': '{"unit": 3}'}, r'k: Keras cannot build Dense of {"unit": 3} for examples of \[3\]: .*unit')])
def test_mistakes_are_explained(params: dict[str, Any], message: str) -> None:
    values = {'class_name': 'Dense', 'config': '{"units": 3}', 'input_shape': (3,), **params}
    with pytest.raises(ValueError, match=message):
        KerasLayer.Params(**values).instantiate('k')
