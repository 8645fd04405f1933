"""KerasLayer: the results of Keras, without the state of Keras."""
from __future__ import annotations

import json
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lingpipe import pricing
from lingpipe.keras_models import from_keras
from lingpipe.layers import KerasLayer
from lingpipe.layers.context import Context
from lingpipe.layers.nested import NestedMap

X = np.random.default_rng(0).normal(size=[4, 6, 3]).astype(np.float32)


def made(class_name: str, shape: tuple[int, ...] = (6, 3), **config: Any) -> KerasLayer:
    return KerasLayer.Params(class_name=class_name, config=json.dumps(config),
                             input_shape=shape).instantiate('k')


@pytest.mark.parametrize('class_name, config', [
    ('LSTM', {'units': 4}),
    ('Conv1D', {'filters': 5, 'kernel_size': 3}),
    ('BatchNormalization', {'momentum': 0.9}),
    ('Bidirectional', {'layer': keras.layers.serialize(keras.layers.GRU(2))})])
def test_training_gives_what_keras_gives(class_name: str, config: dict[str, Any]) -> None:
    layer = made(class_name, **config)
    theta = layer.initial_theta()
    original = getattr(keras.layers, class_name).from_config(config)
    original.build((None, 6, 3))
    original.set_weights([theta[name].numpy() for name in theta])
    ctx = Context(training=True)
    np.testing.assert_allclose(layer.fprop(theta, ctx, tf.constant(X)), original(X, training=True),
                               atol=1e-6)
    after = dict(zip(theta, original.get_weights(), strict=True))
    updated = {}
    for (_, name), (mean, variance, _) in ctx.emissions.moments.items():
        updated.update(layer.updated_state(name, theta, (mean, variance)))
    assert set(updated) == {w.path.split('/')[1] for w in layer.weights() if not w.is_trainable}
    for name, value in updated.items():
        np.testing.assert_allclose(value, after[name], atol=1e-6)


@pytest.mark.parametrize('add', [
    lambda x, y: x + y, lambda x, y: keras.layers.Add()([x, y]),
    lambda x, y: keras.layers.Average()([x, y])])
@pytest.mark.parametrize('shape', [(4,), (6, 4), (4, 6)])
def test_as_many_examples_as_channels_make_no_bias_of_numbers_of_examples(
        add: Any, shape: tuple[int, ...]) -> None:
    """keras.ops.add takes them for a bias where it knows the number of examples."""
    rng = np.random.default_rng(1)
    x, y = (rng.normal(size=(4, *sizes)).astype(np.float32)
            for sizes in (shape, [1] * len(shape)))
    inputs = [keras.Input(shape), keras.Input([1] * len(shape))]
    operation = keras.Model(inputs, add(*inputs)).operations[-1]
    arguments = '{"x1": {"tensor": "x_0"}, "x2": {"tensor": "x_1"}}'
    is_layer = isinstance(operation, keras.layers.Layer)
    layer = KerasLayer.Params(
        layer=operation, input_shapes={'x_0': shape, 'x_1': [1] * len(shape)},
        **({} if is_layer else {'arguments': arguments})).instantiate('k')
    result = layer.fprop(NestedMap(), Context(), x_0=tf.constant(x), x_1=tf.constant(y))
    half = 0.5 if isinstance(operation, keras.layers.Average) else 1.
    np.testing.assert_allclose(result, half * (x + y), atol=1e-6)


@pytest.mark.parametrize('first, second', [   # None: of examples.
    ((None, 4, 4), (None, 4, 1)), ((None, 1, 4), (None, 4, 1))])
def test_numbers_of_positions_of_one_example_are_no_bias(first: Any, second: Any) -> None:
    inputs = [keras.Input(shape[1:]) for shape in (first, second)]
    model = keras.Model(inputs, inputs[0] + inputs[1])
    layer = KerasLayer.Params(
        layer=model.operations[-1], arguments='{"x1": {"tensor": "x_0"}, "x2": {"tensor": "x_1"}}',
        input_shapes={'x_0': first[1:], 'x_1': second[1:]}).instantiate('k')
    rng = np.random.default_rng(1)
    x, y = (rng.normal(size=(1, *shape[1:])).astype(np.float32) for shape in (first, second))
    result = layer.fprop(NestedMap(), Context(), x_0=tf.constant(x), x_1=tf.constant(y))
    np.testing.assert_allclose(result, x + y, atol=1e-6)


def test_a_number_for_each_example_that_is_added_to_a_constant_is_no_bias() -> None:
    row, x = np.ones((1, 4), np.float32), np.arange(4, dtype=np.float32)[:, np.newaxis]
    numbers = keras.Input((1,), name='x')
    model = keras.Model(numbers, keras.ops.add(row, numbers))
    network = from_keras(model).instantiate('model')
    values = network.fprop(network.initial_theta(), Context(), x=tf.constant(x))
    np.testing.assert_allclose(values['add'], row + x, atol=1e-6)


def test_variables_have_no_memory() -> None:
    """The variables of this layer would need 40 GB."""
    layer = KerasLayer.Params(class_name='Dense', config='{"units": 100000}',
                              input_shape=(100000,)).instantiate()
    assert layer.num_weights == 100000 * 100001
    # Keras gave the variables memory when the next such scope ended, for example in a symbolic
    # call of another layer.
    with keras.StatelessScope():
        pass


def test_weights_are_named_without_keras_process_wide_numbers() -> None:
    names = [[w.path for w in made('Bidirectional',
                                   layer=keras.layers.serialize(keras.layers.LSTM(2))).weights()]
             for _ in range(2)]
    assert names[0] == names[1] == ['k/kernel_0', 'k/recurrent_kernel_0', 'k/bias_0', 'k/kernel_1',
                                    'k/recurrent_kernel_1', 'k/bias_1']


def test_first_values_are_keras_initializers_and_depend_on_the_seed() -> None:
    layer = made('LSTM', units=4)
    first, again, other = (layer.initial_theta(seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.kernel, again.kernel)
    assert np.all(first.kernel != other.kernel)
    # The forget gate of an LSTM begins open, by an initializer of its own.
    np.testing.assert_array_equal(first.bias, [0] * 4 + [1] * 4 + [0] * 8)


def test_random_numbers_come_from_the_context() -> None:
    layer = made('Dropout', rate=0.5)
    found = [layer.fprop(NestedMap(), Context(True, step=1, micro_batch=m), tf.constant(X)).numpy()
             for m in (1, 1, 2)]
    np.testing.assert_array_equal(found[0], found[1])
    assert np.any(found[0] != found[2])
    np.testing.assert_array_equal(layer.fprop(NestedMap(), Context(), tf.constant(X)), X)


def test_two_draws_of_a_layer_differ_from_each_other_and_from_the_next_micro_batch() -> None:
    """If the position itself were Keras' seed, two draws would be equal.

    They are the second draw of micro-batch 0 and the first draw of micro-batch 1.
    """
    @keras.saving.register_keras_serializable('lingpipe_tests')
    class TwoDraws(keras.layers.Layer):
        def __init__(self, **kwargs: Any):
            super().__init__(**kwargs)
            self.generator = keras.random.SeedGenerator(0)

        def call(self, x: Any) -> Any:
            return keras.ops.stack(
                [keras.random.uniform(keras.ops.shape(x), seed=self.generator) for _ in range(2)])

    layer = made('lingpipe_tests>TwoDraws')
    a, b = (layer.fprop(NestedMap(), Context(True, micro_batch=m), tf.constant(X)).numpy()
            for m in (0, 1))
    draws = [a[0], a[1], b[0], b[1]]
    assert not any(np.any(draws[i] == draws[j]) for i in range(4) for j in range(i))


def test_regularizers_are_scaled_by_the_mean_weight_of_a_micro_batch() -> None:
    layer = made('Dense', units=2, kernel_regularizer={'class_name': 'L2', 'config': {'l2': 0.5}})
    theta, ctx = layer.initial_theta(), Context(True, mean_weight=6.)
    layer.fprop(theta, ctx, tf.constant(X))
    assert (float(ctx.emissions.losses['k', 'loss'])
            == pytest.approx(6 * 0.5 * float(tf.reduce_sum(theta.kernel ** 2))))
    assert not ctx.emissions.weights


@pytest.mark.parametrize('params, message', [
    ({'class_name': 'Dens'},
     "class_name='Dens' is no layer of Keras; write the name of a class in keras.layers"),
    ({'config': '{units: 3}'},
     "config='{units: 3}' is no JSON .*; write an object like {\"units\": 64}"),
    ({'config': '[3]'}, r"config='\[3\]' is no JSON object"),
    ({'config': '{"unit": 3}'},
     r'k: Keras cannot build Dense of {"unit": 3}: .*unit')])
def test_mistakes_are_explained(params: dict[str, Any], message: str) -> None:
    values = {'class_name': 'Dense', 'config': '{"units": 3}', 'input_shape': (3,), **params}
    with pytest.raises(ValueError, match=message):
        KerasLayer.Params(**values).instantiate('k')


@keras.saving.register_keras_serializable('lingpipe_tests')
class NormCell(keras.layers.SimpleRNNCell):
    """A recurrent cell with a BatchNormalization, which thus runs in a loop over time."""

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        self.norm = keras.layers.BatchNormalization()
        self.norm.build((None, self.units))

    def call(self, x: Any, states: Any, training: bool = False) -> Any:
        output, states = super().call(x, states, training=training)
        return self.norm(output, training=training), states


def serialized(layer: Any) -> Any:
    return keras.layers.serialize(layer)


@pytest.mark.parametrize('class_name, config, message', [
    ('LSTM', {'units': 2, 'return_state': True},
     "k: LSTM gives 3 outputs, but writes names one; write writes={'x_0': ..., 'x_1': ..., "),
    ('Dense', {'units': 2, 'kernel_constraint': 'max_norm'},
     'k: Dense has a constraint of kernel, which Keras applies after each update'),
    ('TimeDistributed', {'layer': serialized(keras.layers.Dense(2, bias_constraint='non_neg'))},
     'k: TimeDistributed has a constraint of bias'),
    ('StringLookup', {'vocabulary': ['a', 'b']},
     'k: StringLookup looks words or ids up in a table of TensorFlow, .* call it in the input'),
    ('Normalization', {}, 'k: a Normalization without mean and variance has not been adapted to '
                          'data; give them in config'),
    ('BatchNormalization', {'synchronized': True},
     'k: a BatchNormalization with synchronized=True takes its moments over the replicas of Keras'),
    ('GRU', {'units': 2, 'stateful': True},
     'k: GRU has stateful=True, .* set stateful=False'),
    ('Bidirectional', {'layer': serialized(keras.layers.LSTM(2, stateful=True))},
     'k: LSTM has stateful=True, .* set stateful=False'),
    ('Add', {}, 'k: Keras cannot build Add of {}')])
def test_what_a_pipeline_cannot_run_as_keras_does_is_refused_when_it_is_built(
        class_name: str, config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(class_name, **config)


@pytest.mark.parametrize('class_name, config, message',
                         [('SpectralNormalization', {'layer': serialized(keras.layers.Dense(2))},
                           'k: SpectralNormalization assigns to its weight kernel in its'),
                          ('RNN', {'cell': serialized(NormCell(2))},
                           'k: the Keras layer changes its state inside a loop over time')])
def test_what_a_pipeline_cannot_run_as_keras_does_is_refused_by_the_plan(
        class_name: str, config: Any, message: str) -> None:
    layer = made(class_name, **config)
    with pytest.raises(ValueError, match=message):
        pricing.price(layer, tf.TensorSpec((4, 6, 3)))


@pytest.mark.parametrize('class_name, config, expected',
                         [('Softmax', {'axis': 0}, True),
                          ('Softmax', {'axis': -3}, True),
                          ('Softmax', {'axis': -2}, False),
                          ('Softmax', {'axis': [1, 2]}, False),
                          ('LayerNormalization', {'axis': [1]}, False)])
def test_layers_that_mix_examples_need_the_whole_mini_batch(
        class_name: str, config: Any, expected: bool) -> None:
    assert made(class_name, **config).needs_whole_batch is expected


def test_batch_normalization_over_replicas_is_refused() -> None:
    layer = made('BatchNormalization')
    with pytest.raises(
            ValueError,
            match="k: cross_replica_batch_norm does not reach Keras' BatchNormalization"):
        layer.fprop(layer.initial_theta(), Context(True, gather=lambda t: t[tf.newaxis]),
                    tf.constant(X))


def test_random_numbers_are_keras_own_for_the_same_seeds() -> None:
    layer, ctx = (made('LSTM', units=3, dropout=0.4, recurrent_dropout=0.3),
                  Context(True, step=3, micro_batch=2))
    theta = layer.initial_theta()
    original = keras.layers.LSTM(3, dropout=0.4, recurrent_dropout=0.3)
    original.build((None, 6, 3))
    original.set_weights([value.numpy() for value in theta.values()])
    seed = tf.random.stateless_uniform([2], ctx.seed('k', '0'), maxval=2**31 - 2, dtype=tf.int64,
                                       alg='philox')
    original.cell.seed_generator.state.assign(seed)
    np.testing.assert_allclose(layer.fprop(theta, ctx, tf.constant(X)), original(X, training=True),
                               atol=1e-6)
