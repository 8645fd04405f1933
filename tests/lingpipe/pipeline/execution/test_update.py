"""The update of a step: dtypes, clipping, weightless mini-batches, and moments of unequal ones."""
from __future__ import annotations

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.hyperparams import field, fields_of
from lingpipe.layers import Sequential
from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams

D = 3


class Linear(Layer):
    """Emits a loss whose gradient is known, the sum of weight * x * w, and passes x on."""

    class Params(Layer.Params):
        dtype: str = field('float32', 'Dtype of w.')
        start: str = field('ones', 'Initializer of w.')
        is_auxiliary: bool = field(False, 'Whether it gives no weight of its own.')

    def __init__(self, params, path=''):
        super().__init__(params, path)
        self.add_weight('w', [1, D], self.params.start, dtype=tf.as_dtype(self.params.dtype))

    def fprop(self, theta, ctx, x, weight):
        terms = tf.cast(weight[:, None] * x, theta.w.dtype) * theta.w
        ctx.emit_loss(self.path, 'loss', tf.reduce_sum(terms),
                      None if self.params.is_auxiliary else tf.reduce_sum(weight))
        return x

    def cost(self, x, weight):
        return Cost(6. * x.shape.num_elements(), self.num_weights, x)


def program_of(batch, num_cells=1, num_micro_batches=4, layer_params=None, specs=(), num_replicas=1,
               reduction='add', **learner):
    layer_params = layer_params or {}
    network = Sequential.Params(name='model', layers=(
        Linear.Params(name='first', is_auxiliary=True, **layer_params),
        Linear.Params(name='last', **layer_params)))
    learn = Learner.Params(**{'learning_rate': learning_rates.Constant.Params(rate=0.5),
                              'decay_vectors': True, **learner})
    params = PipelineParams(num_cells=num_cells, num_micro_batches=num_micro_batches,
                            num_replicas=num_replicas, replica_reduction=reduction)
    return Program(network.instantiate('model'), spec_of(batch), params, learn.instantiate())


def spec_of(batch):
    return {name: tf.TensorSpec(value.shape, value.dtype) for name, value in batch.items()}


def batch_of(x, weight=None):
    x = np.asarray(x, np.float32)
    return {
        'x': x,
        'weight': np.ones(len(x), np.float32) if weight is None else np.asarray(weight, np.float32)}


def values_of(program):
    return {key: variable.numpy() for key, variable in program.variables().items()}


# Dtypes.

@pytest.mark.parametrize(('num_cells', 'replicas'),
                         [(1, {}), (2, {'num_replicas': 2, 'reduction': 'ring'})])
def test_gradients_of_float64_weights_are_summed_normalised_and_decayed_in_float64(
        num_cells, replicas):
    # float32 represents these numbers, but not their sums.
    x = 1 + np.random.default_rng(0).integers(0, 2 ** 20, [12, D]) * 2.0 ** -20
    program = program_of(batch_of(x), num_cells, num_micro_batches=2,
                         layer_params={'dtype': 'float64'}, weight_decay=0.25, l2=0.125,
                         ema_decay=0.5, ema_warmup=False, clip_norm=1.5, **replicas)
    w = average = np.ones([1, D])
    for step in range(3):
        results = program.train_step(batch_of(x), step)
        gradient = x.mean(0, keepdims=True) + 0.125 * w
        norm = np.sqrt(2 * np.sum(gradient ** 2))   # The norm is over both layers.
        assert float(results['gradient_norm']) == pytest.approx(norm, rel=1e-14)
        w = w - 0.5 * 0.25 * w - 0.5 * gradient * 1.5 / norm
        average = 0.5 * (w + average) if step else w
    for layer in ('first', 'last'):
        assert program.weights[f'model/{layer}/w'].dtype == tf.float64
        np.testing.assert_allclose(program.weights[f'model/{layer}/w'], w, rtol=1e-14)
        np.testing.assert_allclose(program.variables()[f'ema/model/{layer}/w'], average, rtol=1e-14)


def test_gradients_and_averages_of_bfloat16_weights_are_kept_in_float32():
    batch = batch_of(np.repeat([[256.], [1.], [1.], [2.]], D, 1))   # In bfloat16, 256 + 1 is 256.
    program = program_of(batch, 2, layer_params={'dtype': 'bfloat16'}, weight_decay=0.5,
                         ema_decay=0.75, ema_warmup=False)
    w = average = 1.0
    for step in range(2):
        program.train_step(batch, step)
        w = float(tf.cast(w - 0.25 * w, tf.bfloat16))
        w = float(tf.cast(w - 0.5 * 65., tf.bfloat16))
        average = w + 0.75 * (average - w) if step else w
    np.testing.assert_array_equal(tf.cast(program.weights['model/first/w'], tf.float32),
                                  np.full([1, D], w))
    found = program.variables()['ema/model/first/w']
    assert found.dtype == tf.float32
    np.testing.assert_array_equal(found, np.full([1, D], average))
    total, _ = program.evaluator(spec_of(batch)).step(batch)[0]['loss/model/first/loss']
    assert float(total) == pytest.approx(260 * D * average, rel=1e-2)


@pytest.mark.parametrize(('num_cells', 'replicas'), [
    (1, {}), (2, {}), (1, {'num_replicas': 2}), (2, {'num_replicas': 2, 'reduction': 'ring'})])
def test_a_step_that_returns_gradients_changes_nothing_else(num_cells, replicas):
    mini_batches = [batch_of(np.random.default_rng(seed).normal(size=[8, D]), [1, 1, 1, 0] * 2)
                    for seed in range(2)]
    programs = [program_of(mini_batches[0], num_cells, 2, accumulate=2, l2=0.125, clip_norm=0.25,
                           **replicas) for _ in range(2)]
    for step in range(2):
        before = programs[0].weights['model/last/w'].numpy()
        for program in programs:
            program.accumulate(mini_batches[0], step, 0)
        plain, (found, _) = (programs[0].train_step(mini_batches[1], step, 1),
                             programs[1].timed_step(mini_batches[1], step, 1, has_gradients=True))

        gradients = found.pop('gradients')
        assert {key: value.numpy() for key, value in found.items()} == {
            key: value.numpy() for key, value in plain.items()}
        weighted = np.concatenate([batch['x'][batch['weight'] > 0] for batch in mini_batches])
        np.testing.assert_allclose(gradients['model/last/w'],
                                   weighted.mean(0, keepdims=True) + 0.125 * before, rtol=1e-5)
        assert set(gradients) == set(programs[0].weights)

    expected, found = map(values_of, programs)
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)


def test_a_weight_that_cannot_be_trained_is_refused():
    batch = batch_of(np.ones([4, D]))
    with pytest.raises(ValueError, match='model/first/w is complex64, and only real floating-point '
                                         'weights can be trained; hold it as'):
        program_of(batch, layer_params={'dtype': 'complex64'})
    with pytest.raises(
            ValueError,
            match=r'model/first/w is bfloat16, in which beta_2=0\.999 of Adam is 1, so that it '
                  r'would not train; use another beta_2, or weights of a more exact dtype'):
        program_of(batch, layer_params={'dtype': 'bfloat16'}, optimizer=optimizers.Adam.Params())
    with pytest.raises(ValueError, match='model/first/w is float32, in which epsilon=1e-50 of '
                                         'RMSProp is 0, so that it would not train'):
        program_of(batch, optimizer=optimizers.RMSProp.Params(epsilon=1e-50))
    with pytest.raises(ValueError, match="model/first/w is float64, and Keras' Muon multiplies "
                                         "matrices with float32 numbers"):
        program_of(batch, layer_params={'dtype': 'float64'}, optimizer=optimizers.Muon.Params())


# Clipping.

def test_l2_is_clipped_with_the_gradient_that_it_is_added_to():
    batch = batch_of(np.full([4, D], 2.))
    program = program_of(batch, 2, l2=3.0, clip_norm=1.0)
    program.train_step(batch, 0)
    np.testing.assert_allclose(program.weights['model/last/w'],
                               np.full([1, D], 1 - 0.5 / np.sqrt(2 * D)), rtol=1e-6)


# Mini-batches that count for as much as they are large, or for nothing.

class Mean(Layer):
    """Keeps the mean of x, and passes x on."""

    def __init__(self, params, path=''):
        super().__init__(params, path)
        self.add_weight('mean', [D], 'zeros', is_trainable=False)

    def fprop(self, theta, ctx, x):
        ctx.emit_mean(self.path, 'mean', tf.reduce_mean(x, 0), x.shape[0])
        return x

    def updated_state(self, name, state, value):
        return {'mean': value}

    def cost(self, x):
        return Cost(x.shape.num_elements(), 0, x)


def test_accumulated_mini_batches_of_several_sizes_count_as_much_as_they_are_large():
    network = Sequential.Params(name='model', layers=(
        Mean.Params(name='mean'), layers.BatchNorm.Params(name='bn', dim=D, decay=0.),
        Linear.Params(name='loss'))).instantiate('model')
    rng = np.random.default_rng(0)
    sizes = [batch_of(rng.normal(5 * i, 1 + i, size=[size, D]))
             for i, size in enumerate((16, 4, 8))]
    params = PipelineParams(num_cells=2, num_micro_batches=2, num_replicas=2)
    learn = Learner.Params(learning_rate=learning_rates.Constant.Params(rate=0.5)).instantiate()
    program = Program(network, [spec_of(batch) for batch in sizes], params, learn)
    program.accumulate(sizes[0], 0, 0)
    program.accumulate(sizes[1], 0, 1)
    program.train_step(sizes[2], 0, 2)
    x = np.concatenate([batch['x'] for batch in sizes]).astype(np.float64)
    np.testing.assert_allclose(program.weights['model/mean/mean'], x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(program.weights['model/bn/moving_mean'], x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(program.weights['model/bn/moving_variance'], x.var(0), rtol=1e-5)



def test_a_mini_batch_whose_weights_are_all_0_changes_nothing():
    network = Sequential.Params(name='model', layers=(
        layers.BatchNorm.Params(name='bn', dim=D),
        layers.Dense.Params(name='dense', input_dim=D, units=D),
        Linear.Params(name='loss'))).instantiate('model')
    learn = Learner.Params(optimizer=optimizers.Nadam.Params(),
                           learning_rate=learning_rates.Constant.Params(rate=0.1), weight_decay=0.1,
                           l2=0.1, ema_decay=0.9).instantiate()
    first, none = (batch_of(np.random.default_rng(0).normal(size=[4, D]), weight)
                   for weight in (None, np.zeros(4)))
    program = Program(network, spec_of(first), PipelineParams(num_cells=2, num_micro_batches=2),
                      learn)

    program.train_step(first, 0)
    before = values_of(program)
    results = program.train_step(none, 1)
    assert (float(results['weight']), float(results['loss']), bool(results['is_finite'])) == (
        0., 0., True)
    for key, value in values_of(program).items():
        np.testing.assert_array_equal(value, before[key], err_msg=key)


def test_a_mini_batch_of_no_examples_is_refused():
    with pytest.raises(ValueError, match='the mini-batch has 0 examples'):
        program_of(batch_of(np.zeros([0, D])))


# Weights that the loss does not depend on.

class Fork(keras.Model):
    """Connects first -> last and side, which has the shape of last but whose output is not read."""

    def __init__(self, units):
        super().__init__()
        self.first, self.side, self.last = (keras.layers.Dense(units, activation='tanh', name=name)
                                            for name in ('first', 'side', 'last'))

    def call(self, x):
        x = self.first(x)
        self.side(x)
        return self.last(x)


def fork(order=('first', 'side', 'last'), **share):
    """The same network as Params, with the layers in another order if asked."""
    def dense(name):
        config = json.dumps({'units': D, 'activation': 'tanh'})
        writes = {'writes': name} if name != 'last' else {}
        return layers.KerasLayer.Params(name=name, class_name='Dense', config=config,
                                        input_shape=(D,), share=share.get(name, {}),
                                        reads={'x': 'image' if name == 'first' else 'first'},
                                        **writes)
    return (*map(dense, order), layers.MeanSquaredErrorLoss.Params(name='loss'))


def regression(num_batches=3):
    rng = np.random.default_rng(0)
    return [{name: rng.normal(size=[8, D]).astype(np.float32) for name in ('image', 'target')}
            for _ in range(num_batches)]


def forked(members, pipeline, kernel=None, **learner):
    """Returns a Program after three steps, and all its variables before them.

    `kernel` is the first value of the kernels of 'side' and 'last'.
    """
    learn = Learner.Params(learning_rate=learning_rates.Constant.Params(rate=0.05),
                           decay_vectors=True, **learner).instantiate()
    program = Program(layers.Sequential.Params(layers=members).instantiate('model'),
                      spec_of(regression()[0]), pipeline, learn)
    for path in ('model/side/kernel', 'model/last/kernel') if kernel is not None else ():
        if path in program.weights:
            program.weights[path].assign(kernel)
    before = values_of(program)
    for step, batch in enumerate(regression()):
        program.train_step(batch, step)
    return program, before


@pytest.mark.parametrize(('optimizer', 'learner', 'regularizer'), [
    (optimizers.AdamW.Params(), {'weight_decay': 0.2}, None),
    (optimizers.SGD.Params(momentum=0.9), {'l2': 0.2}, 0.1),
    (optimizers.Ftrl.Params(l1_regularization_strength=0.1), {}, None),
], ids=['AdamW', 'SGD', 'Ftrl'])
def test_a_weight_without_a_gradient_stays_as_it_is_as_in_keras(optimizer, learner, regularizer):
    whole, before = forked(fork(), PipelineParams(num_micro_batches=2), optimizer=optimizer,
                           **learner)

    model = Fork(D)
    model(regression()[0]['image'])
    for layer in (model.first, model.side, model.last):
        layer.set_weights(
            [before[f'weights/model/{layer.name}/{name}'] for name in ('kernel', 'bias')])
    # With a regularizer on side as well, the loss would depend on its weights.
    for layer in (model.first, model.last) if regularizer else ():
        layer.kernel.regularizer = layer.bias.regularizer = keras.regularizers.L2(regularizer)
    arguments = {name: getattr(optimizer, name) for name in fields_of(type(optimizer))}
    model.compile(type(optimizer).owner.keras_class(0.05, weight_decay=learner.get('weight_decay'),
                                                    **arguments),
                  'mse')

    with pytest.warns(UserWarning, match='Gradients do not exist for variables'):
        for batch in regression():
            model.train_on_batch(batch['image'], batch['target'])

    found = values_of(whole)
    for weight in model.trainable_weights:
        path = 'weights/model/' + '/'.join(weight.path.split('/')[-2:])
        np.testing.assert_allclose(found[path], weight, rtol=2e-6, atol=2e-6, err_msg=path)
    for key, value in found.items():
        assert np.array_equal(value, before[key]) == (
            '/side/kernel' in key or '/side/bias' in key), key

    cut, _ = forked(fork(), PipelineParams(num_cells=3, num_micro_batches=2,
                                           layers_per_cell=(1, 1, 2), recompute='layer'),
                    optimizer=optimizer, **learner)
    for key, value in values_of(cut).items():
        np.testing.assert_array_equal(value, found[key], err_msg=key)


def test_replicas_agree_about_a_weight_without_a_gradient():
    learner = {'optimizer': optimizers.Nadam.Params(), 'ema_decay': 0.9, 'clip_norm': 0.5,
               'l2': 0.2, 'weight_decay': 0.2}
    whole, before = forked(fork(), PipelineParams(num_micro_batches=2), **learner)
    found = values_of(whole)
    copies, _ = forked(fork(), PipelineParams(num_cells=2, num_replicas=2, recompute='none'),
                       **learner)
    copies.check_replicas()
    for key, value in values_of(copies).items():
        np.testing.assert_array_equal(value, found[key], err_msg=key)
        assert np.array_equal(value, before[key]) == (
            '/side/kernel' in key or '/side/bias' in key), key
