"""Layer learner: a layer's updates follow the formulas, one weight after the other."""
from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lingpipe.learning import learning_rates, optimizers
from tests.support.learners import TOLERANCE, gradient_of, learner, make_weights, train


def test_sgd_is_its_formula():
    w = make_weights()['model/dense/kernel'].numpy()
    for step in range(5):
        w -= 0.1 * gradient_of('model/dense/kernel', step)
    _, weights = train(learner(0.1))
    np.testing.assert_allclose(weights['model/dense/kernel'], w, atol=TOLERANCE)


def test_a_rate_factor_acts_on_the_update_and_the_decay_of_the_weights_that_it_names():
    kernel, bias = (make_weights()[f'model/dense/{name}'].numpy() for name in ('kernel', 'bias'))
    for step in range(5):
        kernel = kernel - 0.02 * (0.5 * kernel + gradient_of('model/dense/kernel', step))
        bias = bias - 0.1 * gradient_of('model/dense/bias', step)
    _, weights = train(learner(0.1, weight_decay=0.5,
                               rate_factors=(('nel$', 0.2), ('dense/kernel', 9.))))
    np.testing.assert_allclose(weights['model/dense/kernel'], kernel, atol=TOLERANCE)
    np.testing.assert_allclose(weights['model/dense/bias'], bias, atol=TOLERANCE)


def test_an_empty_rate_factor_is_that_of_all_other_weights():
    """It was that of none."""
    _, weights = train(learner(0.1, rate_factors=(('kernel$', 2.), ('', 0.5))))
    for name, rate in ('kernel', 0.2), ('bias', 0.05):
        path = f'model/dense/{name}'
        _, expected = train(learner(rate))
        np.testing.assert_allclose(weights[path], expected[path], atol=TOLERANCE)


def test_layers_of_other_rate_factors_are_of_another_kind():
    """Layers that are alike share one trace of their update."""
    the_learner = learner(rate_factors=(('^head/', 10.),))
    weights = list(make_weights().values())
    kinds = [the_learner.for_layer(path, {f'{path}/{i}': w for i, w in enumerate(weights)}).kind
             for path in ('body', 'neck', 'head')]
    assert kinds[0] == kinds[1] != kinds[2]


def test_rmsprop_with_momentum_is_its_formula():
    w = make_weights()['model/dense/kernel'].numpy()
    v = m = np.zeros_like(w)
    for step in range(5):
        g = gradient_of('model/dense/kernel', step)
        v = 0.9 * v + 0.1 * g ** 2
        m = 0.8 * m + 0.1 * g / np.sqrt(v + 1.)
        w -= m
    _, weights = train(
        learner(0.1, optimizer=optimizers.RMSProp.Params(rho=0.9, momentum=0.8, epsilon=1.)))
    np.testing.assert_allclose(weights['model/dense/kernel'], w, atol=TOLERANCE)


def test_adamw_is_its_formula_and_spares_biases():
    expected = {}
    for path, decay in (('model/dense/kernel', 0.01), ('model/dense/bias', 0.)):
        w = make_weights()[path].numpy()
        m = v = np.zeros_like(w)
        for step in range(5):
            g = gradient_of(path, step)
            m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g ** 2
            alpha = 0.1 * np.sqrt(1 - 0.99 ** (step + 1)) / (1 - 0.9 ** (step + 1))
            w = w - 0.1 * decay * w - alpha * m / (np.sqrt(v) + 1e-7)
        expected[path] = w
    _, weights = train(learner(0.1, optimizer=optimizers.AdamW.Params(beta_2=0.99),
                               weight_decay=0.01))
    for path, w in expected.items():
        np.testing.assert_allclose(weights[path], w, atol=TOLERANCE)


def test_layers_that_are_alike_but_for_their_slots_do_not_share_an_update():
    the_learner = learner(optimizer=optimizers.Muon.Params(exclude_layers=('a/b',)))
    layers = [the_learner.for_layer('m',
                                    {f'm/{name}': tf.Variable(tf.ones([2, 2])) for name in names})
              for names in (('a/b', 'c'), ('c', 'a/b'), ('c', 'd'), ('e', 'f'))]
    assert layers[2].kind == layers[3].kind
    assert len({layer.kind for layer in layers}) == 3


class _OnlyKernels(keras.optimizers.SGD):
    """Moves no bias, as the rates of some users' optimizers depend on the path of a weight."""

    def build(self, variables):
        super().build(variables)
        self.factors = [float('kernel' in variable.path) for variable in variables]

    def update_step(self, gradient, variable, learning_rate):
        factor = self.factors[self._get_variable_index(variable)]
        super().update_step(gradient, variable, learning_rate * factor)


class OnlyKernels(optimizers.Optimizer):
    """Makes _OnlyKernels, whose slots do not tell which weights are kernels."""

    keras_class = _OnlyKernels


def test_layers_whose_optimizer_is_a_users_own_do_not_share_an_update():
    # They did, so that the rate of a weight was that of the first layer of the same shape.
    the_learner = learner(optimizer=OnlyKernels.Params())
    layers = [the_learner.for_layer(name, {f'{name}/w': tf.Variable(tf.ones([2]))})
              for name in ('kernel', 'bias', 'kernel')]
    assert layers[0].kind != layers[1].kind
    assert layers[0].kind == layers[2].kind
    # Replicas that share slots each have some of the weights of a layer.
    parts = [the_learner.for_layer('layer', {f'layer/{name}': tf.Variable(tf.ones([2]))})
             for name in ('kernel', 'bias')]
    assert parts[0].kind != parts[1].kind
    rounded = learner(optimizer=OnlyKernels.Params(), bfloat16_slots=True)
    assert (rounded.for_layer('a', {'a/w': tf.Variable(tf.ones([2]))}).kind
            != rounded.for_layer('b', {'b/w': tf.Variable(tf.ones([2]))}).kind)


def test_a_weight_without_gradient_keeps_its_value_and_slots():
    weights = make_weights()
    before = weights['model/dense/bias'].numpy()
    layer = learner(optimizer=optimizers.Adam.Params(), weight_decay=0.1,
                    decay_vectors=True).for_layer('model/dense', weights)
    layer.apply({'model/dense/kernel': tf.ones([4, 3]), 'model/dense/bias': None})
    np.testing.assert_array_equal(weights['model/dense/bias'], before)
    np.testing.assert_array_equal(layer.variables()['optimizer/model/dense/bias/velocities'],
                                  [0., 0., 0.])
    assert not np.allclose(layer.variables()['optimizer/model/dense/kernel/velocities'], 0.)


def test_a_gradient_may_be_made_in_its_turn():
    weights = make_weights()
    before = weights['model/dense/bias'].numpy()
    layer = learner(1.).for_layer('model/dense', weights)
    layer.apply({'model/dense/kernel': lambda: None, 'model/dense/bias': lambda: tf.ones([3])})
    np.testing.assert_array_equal(weights['model/dense/bias'], before - 1)


def test_all_layers_count_an_update_even_one_without_gradients():
    layer = learner().for_layer('model/dense', make_weights())
    apply = tf.function(lambda: layer.apply({}), autograph=False)
    assert apply().numpy() == 1
    assert apply().numpy() == 2
    assert layer.variables()['optimizer/model/dense/iterations'].numpy() == 2


def test_an_update_works_in_a_branch_that_skips_steps_that_are_not_finite():
    weights = make_weights()
    before = weights['model/dense/bias'].numpy()
    layer = learner(1.).for_layer('model/dense', weights)

    def update():
        layer.apply({path: tf.ones_like(w) for path, w in weights.items()})
        return tf.constant(True)

    @tf.function(autograph=False)
    def step(is_finite):
        return tf.cond(is_finite, update, lambda: tf.constant(False))

    step(tf.constant(False))
    step(tf.constant(True))
    np.testing.assert_array_equal(weights['model/dense/bias'], before - 1)
    assert layer.variables()['optimizer/model/dense/iterations'].numpy() == 1


def test_the_restored_count_sets_the_learning_rate():
    weights = make_weights()
    before = weights['model/dense/bias'].numpy()
    schedule = learning_rates.Piecewise.Params(boundaries=(100,), rates=(1., 2.))
    layer = learner(learning_rate=schedule).for_layer('model/dense', weights)
    layer.variables()['optimizer/model/dense/iterations'].assign(100)
    layer.apply({'model/dense/bias': tf.ones([3])})
    np.testing.assert_array_equal(weights['model/dense/bias'], before - 2)


@pytest.mark.parametrize('device', ['CPU:0', 'CPU:2'])
def test_slots_and_averages_live_beside_their_weights(device):
    layer = learner(optimizer=optimizers.RMSProp.Params(momentum=0.9), ema_decay=0.9).for_layer(
        'model/dense', make_weights(device))
    assert {v.device[-5:] for v in layer.variables().values()} == {device}


def test_layers_on_several_devices_update_in_one_function():
    the_learner = learner(1.)
    weights = [make_weights(f'CPU:{k}') for k in range(4)]
    before = weights[0]['model/dense/bias'].numpy()
    layers = [the_learner.for_layer(f'model/dense_{k}', w) for k, w in enumerate(weights)]

    @tf.function(autograph=False)
    def step():
        for layer in layers:
            layer.apply({path: tf.ones_like(w) for path, w in layer.weights.items()})

    step()
    for w in weights:
        np.testing.assert_array_equal(w['model/dense/bias'], before - 1)


def test_weights_are_updated_one_after_the_other():
    """Without an order, TensorFlow held temporary tensors of all weights at once.

    It began with the first operation of all updates. RMSProp on eight equal weights took 4.8 bytes
    a weight above the slots, against 2.3.
    """
    layer = learner(optimizer=optimizers.RMSProp.Params(momentum=0.9)).for_layer(
        'model/dense', make_weights())
    apply = tf.function(
        lambda kernel, bias: layer.apply({'model/dense/kernel': kernel, 'model/dense/bias': bias}),
        autograph=False)
    graph = apply.get_concrete_function(tf.TensorSpec([4, 3]), tf.TensorSpec([3])).graph
    ancestors, reached = ([op for op in graph.get_operations()
                           if graph.inputs[1].op in [t.op for t in op.inputs]],
                          set())
    while ancestors:
        op = ancestors.pop()
        if op.name not in reached:
            reached.add(op.name)
            ancestors += [t.op for t in op.inputs] + list(op.control_inputs)
    assert [name for name in reached
            if graph.get_operation_by_name(name).type == 'ResourceApplyRMSProp']


def test_slots_that_begin_as_the_weights_follow_weights_that_are_taken_from_elsewhere():
    layer = learner(optimizer=optimizers.ScheduleFreeAdamW.Params(), ema_decay=0.9).for_layer(
        'm', make_weights())
    layer.weights['model/dense/bias'].assign([7., 8., 9.])
    layer.follow_weights(but={'ema/model/dense/bias'})
    np.testing.assert_array_equal(layer.variables()['optimizer/model/dense/bias/momentums'],
                                  [7., 8., 9.])
    np.testing.assert_array_equal(layer.ema()['model/dense/bias'],
                                  make_weights()['model/dense/bias'])


def test_training_goes_on_exactly_from_copied_variables():
    schedule = learning_rates.Cosine.Params(rate=0.1, decay_steps=8)
    params: dict[str, Any] = {'optimizer': optimizers.Adam.Params(), 'ema_decay': 0.9,
                              'learning_rate': schedule}
    first, straight = train(learner(**params), 5)
    first.apply({path: tf.constant(gradient_of(path, 9)) for path in straight})
    saved, weights = train(learner(**params), 5)
    resumed_weights = make_weights()
    resumed = learner(**params).for_layer('model/dense', resumed_weights)
    for key, variable in saved.variables().items():
        resumed.variables()[key].assign(variable)
    for path, weight in weights.items():
        resumed_weights[path].assign(weight)
    resumed.apply({path: tf.constant(gradient_of(path, 9)) for path in weights})
    for path in weights:
        np.testing.assert_array_equal(resumed_weights[path], straight[path])
        np.testing.assert_array_equal(resumed.ema()[path], first.ema()[path])
