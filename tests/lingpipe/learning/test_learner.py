"""The learner: its updates follow the formulas, and slots are beside their weights.

There are no hidden copies, and all layers share one count of steps.
"""
from __future__ import annotations

import inspect
import re
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner

TOLERANCE = 1e-6   # For float32, values of about 1, and five updates.


def learner(rate: float = 0.1, **values: Any) -> Learner:
    values.setdefault('learning_rate', learning_rates.Constant.Params(rate=rate))
    return Learner.Params(**values).instantiate()


def make_weights(device: str = 'CPU:0') -> dict[str, tf.Variable]:
    rng = np.random.default_rng(0)
    with tf.device(device):
        return {'model/dense/kernel': tf.Variable(rng.normal(size=[4, 3]).astype(np.float32),
                                                  name='model/dense/kernel'),
                'model/dense/bias': tf.Variable(rng.normal(size=[3]).astype(np.float32),
                                                name='model/dense/bias')}


def gradient_of(path: str, step: int) -> np.ndarray:
    shape = [4, 3] if path.endswith('kernel') else [3]
    return np.random.default_rng(step + 100 * len(path)).normal(size=shape).astype(np.float32)


def train(the_learner: Learner, num_steps: int = 5, weights=None):
    weights = weights or make_weights()
    layer = the_learner.for_layer('model/dense', weights)
    apply = tf.function(lambda gradients: layer.apply(gradients))
    for step in range(num_steps):
        apply({path: the_learner.regularized(path, tf.constant(gradient_of(path, step)),
                                             weights[path])
               for path in weights})
    return layer, weights


# Updates.

def test_sgd_is_its_formula():
    w = make_weights()['model/dense/kernel'].numpy()
    for step in range(5):
        w -= 0.1 * gradient_of('model/dense/kernel', step)
    _, weights = train(learner(0.1))
    np.testing.assert_allclose(weights['model/dense/kernel'], w, atol=TOLERANCE)


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


OPTIMIZERS = [(optimizers.SGD, {}),
              (optimizers.SGD, {'momentum': 0.9, 'nesterov': True}),
              (optimizers.RMSProp, {'momentum': 0.9, 'centered': True}),
              (optimizers.Adam, {'amsgrad': True}),
              (optimizers.AdamW, {}),
              (optimizers.Nadam, {}),
              (optimizers.Adamax, {}),
              (optimizers.Adadelta, {}),
              (optimizers.Adagrad, {}),
              (optimizers.Adafactor, {}),
              (optimizers.Lion, {}),
              (optimizers.Lamb, {}),
              (optimizers.Ftrl, {'l1_regularization_strength': 0.01,
                                 'l2_shrinkage_regularization_strength': 0.1, 'beta': 0.1}),
              (optimizers.Muon, {}),
              (optimizers.Muon, {'exclude_layers': ('first/kernel',)}),
              (optimizers.ScheduleFreeAdamW, {'warmup_steps': 2}),]


class OneHotTable(keras.layers.Layer):
    """keras.layers.Embedding as a matrix product.

    The gradient is thus one tensor, and not a row for each occurrence of an id.
    """

    def build(self, input_shape):
        self.embeddings = self.add_weight(shape=(7, 5), name='embeddings')

    def call(self, ids):
        return keras.ops.matmul(keras.ops.one_hot(ids, 7), self.embeddings)


def keras_model(table):
    """Maps ids [b, 6] by a table of 7 rows, which thus occur often, and two layers to [b, 6, 3]."""
    return keras.Sequential([keras.Input((6,), dtype='int32'), table,
                             keras.layers.Dense(4, activation='tanh', name='first'),
                             keras.layers.Dense(3, name='second')])


@pytest.mark.parametrize(('cls', 'values'), OPTIMIZERS,
                         ids=lambda value: getattr(value, '__name__', ''))
def test_every_optimizer_gives_the_numbers_of_train_on_batch_in_keras(cls, values):
    if cls.keras_class is None:
        pytest.skip('this Keras is too old to have it')

    keras.utils.set_random_seed(0)
    model, twin = keras_model(OneHotTable(name='table')), keras_model(keras.layers.Embedding(7, 5))
    decay = {'weight_decay': 0.02,
             **({'adam_weight_decay': 0.02} if cls is optimizers.Muon else {})}
    theirs = cls.keras_class(0.05, **decay, **values)
    model.compile(theirs, 'mse', run_eagerly=True)
    weights = {v.path: tf.Variable(v.numpy()) for v in model.trainable_weights}
    layer = learner(0.05, optimizer=cls.Params(**values), weight_decay=0.02,
                    decay_vectors=True).for_layer('model', weights)

    rng = np.random.default_rng(0)
    for _ in range(4):
        x, y = (rng.integers(0, 6, [8, 6]).astype(np.int32),
                rng.normal(size=[8, 6, 3]).astype(np.float32))
        twin.set_weights([w.numpy() for w in weights.values()])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(keras.losses.mean_squared_error(y, twin(x)))
        gradients = tape.gradient(loss, [v.value for v in twin.trainable_weights])
        assert isinstance(gradients[0], tf.IndexedSlices)
        # This is what the pipeline does.
        layer.apply(dict(zip(weights, map(tf.convert_to_tensor, gradients), strict=True)))
        model.train_on_batch(x, y)

    for variable, weight in zip(model.trainable_weights, weights.values(), strict=True):
        assert np.abs(weight).max() < 10   # This also excludes NaN.
        np.testing.assert_allclose(weight, variable.value, atol=TOLERANCE, err_msg=variable.path)


def test_every_optimizer_of_keras_is_here_or_refused():
    theirs = {cls
              for cls in vars(keras.optimizers).values()
              if inspect.isclass(cls) and issubclass(cls, keras.optimizers.Optimizer)}
    wrappers = {getattr(keras.optimizers, name, None)
                for name in ('LossScaleOptimizer', 'MultiOptimizer')} - {None}
    assert (theirs - wrappers - {keras.optimizers.Optimizer}
            == {cls.keras_class for cls, _ in OPTIMIZERS} - {None})
    for wrapper in wrappers:
        made = type('Wrapper', (optimizers.Optimizer,), {'keras_class': wrapper})
        sentence = (f'keras.optimizers.{wrapper.__name__} has a method apply of its own, in whose '
                    f'place the Learner')
        with pytest.raises(ValueError, match=sentence):
            learner(optimizer=made.Params())
    missing = type('Newer', (optimizers.Optimizer,), {})
    with pytest.raises(ValueError, match=r'Keras [\d.]+ has no optimizer Newer; install a newer '
                                         r'Keras, or use another optimizer'):
        learner(optimizer=missing.Params())


def test_layers_that_are_alike_but_for_their_slots_do_not_share_an_update():
    the_learner = learner(optimizer=optimizers.Muon.Params(exclude_layers=('a/b',)))
    layers = [the_learner.for_layer('m',
                                    {f'm/{name}': tf.Variable(tf.ones([2, 2])) for name in names})
              for names in (('a/b', 'c'), ('c', 'a/b'), ('c', 'd'), ('e', 'f'))]
    assert layers[2].kind == layers[3].kind
    assert len({layer.kind for layer in layers}) == 3


def test_l2_is_added_to_the_gradient_of_kernels_only():
    the_learner = learner(l2=0.5)
    kernel = the_learner.regularized('m/kernel', tf.constant([[1., 2.]]), tf.constant([[10., 20.]]))
    bias = the_learner.regularized('m/bias', tf.constant([1., 2.]), tf.constant([10., 20.]))
    np.testing.assert_array_equal(kernel, [[6., 12.]])
    np.testing.assert_array_equal(bias, [1., 2.])


def test_no_decay_spares_weights_by_path():
    the_learner = learner(l2=0.5, no_decay='embedding')
    assert not the_learner.decays('m/embedding/table', 2)
    assert the_learner.decays('m/dense/kernel', 2)


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
    apply = tf.function(lambda: layer.apply({}))
    assert apply().numpy() == 1
    assert apply().numpy() == 2
    assert layer.variables()['optimizer/model/dense/iterations'].numpy() == 2


def test_an_update_works_in_a_branch_that_skips_steps_that_are_not_finite():
    weights = make_weights()
    before = weights['model/dense/bias'].numpy()
    layer = learner(1.).for_layer('model/dense', weights)

    @tf.function
    def step(is_finite):
        if is_finite:
            layer.apply({path: tf.ones_like(w) for path, w in weights.items()})

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


# Frozen weights, clipping.

def test_frozen_weights_have_no_slots_and_do_not_change():
    layer, weights = train(learner(optimizer=optimizers.Adam.Params(), frozen='/kernel$',
                                   ema_decay=0.9))
    np.testing.assert_array_equal(weights['model/dense/kernel'],
                                  make_weights()['model/dense/kernel'])
    assert not [key for key in layer.variables() if 'kernel' in key]


def test_a_layer_that_is_frozen_has_no_variables():
    layer, _ = train(learner(frozen='^model/dense/'))
    assert layer.variables() == {}


@pytest.mark.parametrize(('norm', 'factor'), [(0., 1.), (2., 1.), (8., 0.5)])
def test_gradients_are_scaled_down_to_the_clip_norm(norm, factor):
    assert learner(clip_norm=4.).clip_factor(tf.constant(norm)).numpy() == factor


def test_without_clip_norm_the_factor_is_one():
    assert learner().clip_factor(tf.constant(1e9)).numpy() == 1.


def test_a_pattern_that_finds_nothing_is_refused():
    sentence = ("learner.frozen='encodr' is found in no path of the 2 weights; paths look like "
                "model/dense/kernel, model/dense/bias")
    with pytest.raises(ValueError, match=re.escape(sentence)):
        learner(frozen='encodr').check_paths(make_weights())


def test_freezing_everything_is_refused():
    with pytest.raises(ValueError, match="freezes all 2 weights; leave some to train"):
        learner(frozen='.').check_paths(make_weights())


# Slots.

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

    @tf.function
    def step():
        for layer in layers:
            layer.apply({path: tf.ones_like(w) for path, w in layer.weights.items()})

    step()
    for w in weights:
        np.testing.assert_array_equal(w['model/dense/bias'], before - 1)


@pytest.mark.parametrize(('params', 'bytes_a_weight'), [
    (optimizers.SGD.Params(), 0),
    (optimizers.SGD.Params(momentum=0.9), 4),
    (optimizers.RMSProp.Params(), 4),
    (optimizers.RMSProp.Params(momentum=0.9), 8),
    (optimizers.RMSProp.Params(momentum=0.9, centered=True), 12),
    (optimizers.Adam.Params(), 8),
    (optimizers.Lion.Params(), 4),
], ids=str)
def test_an_optimizer_holds_its_slots_and_nothing_else(params, bytes_a_weight):
    layer, weights = train(learner(optimizer=params), 1)
    num_weights = sum(w.shape.num_elements() for w in weights.values())
    slot_bytes = sum(v.shape.num_elements() * v.dtype.size
                     for key, v in layer.variables().items() if not key.endswith('/iterations'))
    assert slot_bytes == bytes_a_weight * num_weights
    held = {id(v.value) for v in layer._optimizer.variables}
    # What Keras tracks is what is saved.
    assert held == {id(v) for v in layer.variables().values()}


@pytest.mark.parametrize('dtype', [tf.float64, tf.float32, tf.bfloat16],
                         ids=lambda dtype: dtype.name)
@pytest.mark.parametrize('fields', [
    dict(optimizer=optimizers.SGD.Params()),
    dict(optimizer=optimizers.RMSProp.Params(momentum=0.9, centered=True)),
    dict(optimizer=optimizers.SGD.Params(momentum=0.9), ema_decay=0.9),
    dict(optimizer=optimizers.Adam.Params(beta_2=0.98), ema_decay=0.9),
], ids=['none', '3 slots', '1 slot and an average', '2 slots and an average'])
def test_slot_bytes_are_those_of_the_variables_of_any_dtype(fields, dtype):
    the_learner = learner(**fields)
    weights = {'model/kernel': tf.Variable(tf.zeros([4, 3], dtype)),
               'model/bias': tf.Variable(tf.zeros([3], dtype))}
    variables = the_learner.for_layer('model', weights).variables()
    held = sum(v.shape.num_elements() * v.dtype.size
               for key, v in variables.items() if not key.endswith('/iterations'))
    assert the_learner.slot_bytes(dtype) * (4 * 3 + 3) == held


def test_weights_are_updated_one_after_the_other():
    """Without an order, TensorFlow held temporary tensors of all weights at once.

    It began with the first operation of all updates. RMSProp on eight equal weights took 4.8 bytes
    a weight above the slots, against 2.3.
    """
    layer = learner(optimizer=optimizers.RMSProp.Params(momentum=0.9)).for_layer(
        'model/dense', make_weights())
    apply = tf.function(
        lambda kernel, bias: layer.apply({'model/dense/kernel': kernel, 'model/dense/bias': bias}))
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
            if graph.get_operation_by_name(name).type == 'AssignSubVariableOp']


def test_names_for_the_checkpoint_are_these():
    layer = learner(optimizer=optimizers.RMSProp.Params(momentum=0.9), ema_decay=0.9).for_layer(
        'model/dense', make_weights())
    assert sorted(layer.variables()) == [
        'ema/model/dense/bias', 'ema/model/dense/kernel', 'optimizer/model/dense/bias/momentums',
        'optimizer/model/dense/bias/velocities', 'optimizer/model/dense/iterations',
        'optimizer/model/dense/kernel/momentums', 'optimizer/model/dense/kernel/velocities']
    assert all(isinstance(v, tf.Variable) for v in layer.variables().values())


def test_what_an_optimizer_keeps_for_all_weights_has_the_same_name_in_every_process():
    keys = [
        sorted(learner(optimizer=optimizers.Nadam.Params())
               .for_layer('m', make_weights()).variables())
        for _ in range(2)]
    assert keys[0] == keys[1] and 'optimizer/m/u_product' in keys[0]


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


# Averages of weights.

def test_the_average_begins_with_the_first_update_and_warms_up():
    layer, weights = train(learner(1., ema_decay=0.99), 0)
    path, values = 'model/dense/bias', []
    for _ in range(3):
        layer.apply({path: tf.ones([3])})
        values.append(weights[path].numpy())
    average = values[0]
    for n, value in ((1, values[1]), (2, values[2])):
        average = value + (1 + n) / (10 + n) * (average - value)
    np.testing.assert_allclose(layer.ema()[path], average, atol=TOLERANCE)


def test_without_warm_up_the_decay_is_constant():
    layer, weights = train(learner(1., ema_decay=0.75, ema_warmup=False), 0)
    before = weights['model/dense/bias'].numpy()
    for _ in range(2):
        layer.apply({'model/dense/bias': tf.ones([3])})
    np.testing.assert_allclose(layer.ema()['model/dense/bias'], before - 1.25, atol=TOLERANCE)


def test_averages_follow_weights_that_were_assigned():
    layer, weights = train(learner(ema_decay=0.9), 0)
    weights['model/dense/bias'].assign([7., 8., 9.])
    layer.follow_weights()
    np.testing.assert_array_equal(layer.ema()['model/dense/bias'], [7., 8., 9.])


# Schedules.

@pytest.mark.parametrize(
    ('params', 'expected'),
    [(learning_rates.Constant.Params(rate=2.), {0: 2., 9: 2.}),
     (learning_rates.Constant.Params(rate=2., warmup_steps=4), {0: 0.5, 1: 1., 3: 2., 9: 2.}),
     (learning_rates.Cosine.Params(rate=2., decay_steps=10, warmup_steps=4),
      {0: 0.5, 3: 2., 4: 2., 9: 1., 14: 0., 99: 0.}),
     (learning_rates.Cosine.Params(rate=2., decay_steps=10, final_fraction=0.1),
      {0: 2., 5: 1.1, 10: 0.2}),
     (learning_rates.Exponential.Params(rate=8., decay_steps=10, decay_factor=0.5, staircase=True,
                                        warmup_steps=2),
      {0: 4., 2: 8., 11: 8., 12: 4., 31: 2., 32: 1.}),
     (learning_rates.Exponential.Params(rate=8., decay_steps=10, decay_factor=0.25),
      {0: 8., 5: 4., 10: 2.}),
     (learning_rates.Linear.Params(rate=2., decay_steps=4, final_rate=1.),
      {0: 2., 1: 1.75, 4: 1., 9: 1.}),
     (learning_rates.Polynomial.Params(rate=4., decay_steps=4, power=2.), {0: 4., 2: 1., 4: 0.}),
     (learning_rates.InverseSquareRoot.Params(rate=2., warmup_steps=4),
      {0: 0.5, 3: 2., 15: 1., 63: 0.5}),
     (learning_rates.Piecewise.Params(boundaries=(10, 20), rates=(3., 2., 1.), warmup_steps=3),
      {0: 1., 2: 3., 9: 3., 10: 2., 19: 2., 20: 1.}),],
    ids=str)
def test_a_schedule_is_these_rates(params, expected):
    the_learner = learner(learning_rate=params)
    in_graph = tf.function(the_learner.learning_rate)
    for step, rate in expected.items():
        np.testing.assert_allclose(the_learner.learning_rate(step), rate, atol=TOLERANCE)
        np.testing.assert_allclose(in_graph(tf.constant(step, tf.int64)), rate, atol=TOLERANCE)


# Mistakes.

@pytest.mark.parametrize(('values', 'sentence'), [
    ({'frozen': '('}, "frozen='(' is not a regular expression"),
    ({'clip_norm': 0.}, 'clip_norm=0.0 is not above 0; use more than 0, or none'),
    ({'ema_decay': 1.}, 'ema_decay=1.0 is not below 1; use more than 0 and less than 1, or none'),
    ({'accumulate': 0}, 'accumulate=0 is below 1; use 1 or more'),
    ({'l2': float('nan')}, 'l2=nan is not a number; use 0 or more'),
    ({'optimizer': optimizers.AdamW.Params()},
     'AdamW with weight_decay=0 is Adam; set weight_decay of the learner'),
    ({'learning_rate': learning_rates.Constant.Params()},
     'learning_rate.rate: REQUIRED and not set'),
    ({'learning_rate': learning_rates.Piecewise.Params(boundaries=(5,), rates=(1.,))},
     '1 boundaries and 1 rates'),
    ({'learning_rate': learning_rates.Piecewise.Params(boundaries=(5, 4), rates=(1., 1., 1.))},
     'boundaries=[5, 4] must grow'),
])
def test_a_mistake_is_refused_before_the_first_step(values, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        learner(**values)


@pytest.mark.parametrize(('params', 'values', 'sentence'), [
    (optimizers.SGD.Params, {'momentum': 2.}, 'momentum=2.0 is above 1; use 0 to 1'),
    (optimizers.Adam.Params, {'beta_1': 5.},
     'beta_1=5.0 is not below 1; use 0 or more and less than 1'),
    (optimizers.RMSProp.Params, {'epsilon': -1.}, 'epsilon=-1.0 is not above 0; use more than 0'),
    (learning_rates.Constant.Params, {'rate': float('nan')},
     'rate=nan is not a number; use 0 or more'),
    (learning_rates.Constant.Params, {'warmup_steps': -1},
     'warmup_steps=-1 is below 0; use 0 or more'),
    (learning_rates.InverseSquareRoot.Params, {'warmup_steps': 0},
     'warmup_steps=0 is below 1; use 1 or more'),
    (learning_rates.Cosine.Params, {'decay_steps': 0}, 'decay_steps=0 is below 1; use 1 or more'),
    (learning_rates.Piecewise.Params, {'rates': (1., float('inf'))},
     'rates[1]=inf is not finite; use 0 or more'),
])
def test_a_number_that_would_spoil_the_weights_is_refused(params, values, sentence):
    with pytest.raises(ValueError, match='^' + re.escape(sentence) + '$'):
        params(**values)
