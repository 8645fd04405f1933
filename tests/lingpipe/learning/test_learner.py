"""The learner: regularization, clipping, frozen weights, and mistakes that are refused."""
from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.learning import learning_rates, optimizers
from tests.support.learners import learner, make_weights, train


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


def test_a_pattern_of_weights_that_do_not_train_anyway_is_refused():
    """The error said that it was found in no path, and named adapters as what paths look like."""
    with pytest.raises(ValueError, match="no_decay='scale' is found only in paths of weights that "
                                         'do not train anyway or are tied to others, such as '
                                         'model/norm/scale; leave it empty, or name weights that '
                                         'train, such as model/dense/kernel, model/dense/bias'):
        learner(no_decay='scale').check_paths(make_weights(), [*make_weights(), 'model/norm/scale'])


def test_rate_factors_are_checked():
    with pytest.raises(ValueError, match="rate_factors='head' is found in no path of .*: correct "
                                         r'it, or leave the pair out\.$'):
        learner(rate_factors=(('/kernel$', 0.1), ('head', 2.))).check_paths(make_weights())
    with pytest.raises(ValueError, match="rate_factors has '/kernel' behind pairs that are found "
                                         'in all of its paths, .*; put it before them, or leave'):
        learner(rate_factors=(('', 0.1), ('/kernel', 2.))).check_paths(make_weights())
    learner(rate_factors=(('/kernel', 2.), ('', 0.1))).check_paths(make_weights())
    with pytest.raises(ValueError, match=r"rate_factors='\(' is not a regular expression: missing"):
        learner(rate_factors=(('(', 2.),))
    with pytest.raises(ValueError, match=r'rate_factors\[0\]\[1\]=0\.0 is not above 0; use more'):
        learner(rate_factors=(('kernel', 0.),))


def test_freezing_everything_is_refused():
    with pytest.raises(ValueError, match="freezes 2 weights, which is all; leave some to train"):
        learner(frozen='.').check_paths(make_weights())


@pytest.mark.parametrize('dtype', [tf.float64, tf.float32, tf.bfloat16],
                         ids=lambda dtype: dtype.name)
@pytest.mark.parametrize('fields', [
    dict(optimizer=optimizers.SGD.Params()),
    dict(optimizer=optimizers.RMSProp.Params(momentum=0.9, centered=True)),
    dict(optimizer=optimizers.SGD.Params(momentum=0.9), ema_decay=0.9),
    dict(optimizer=optimizers.Adam.Params(beta_2=0.98), ema_decay=0.9),
    dict(optimizer=optimizers.Adafactor.Params(), ema_decay=0.9),
    dict(optimizer=optimizers.Adam.Params(beta_2=0.98), ema_decay=0.9, bfloat16_slots=True),
], ids=['none', '3 slots', '1 slot and an average', '2 slots and an average', 'factored',
        'rounded'])
def test_slot_bytes_are_those_of_the_variables_of_any_dtype(fields, dtype):
    the_learner = learner(**fields)
    weights = {'model/kernel': tf.Variable(tf.zeros([4, 3], dtype)),
               'model/bias': tf.Variable(tf.zeros([3], dtype))}
    variables = the_learner.for_layer('model', weights).variables()
    held = sum(v.shape.num_elements() * v.dtype.size
               for key, v in variables.items() if not key.endswith('/iterations'))
    assert sum(map(the_learner.slot_bytes, weights.values())) == held


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
     '1 boundary and 1 rate: '),
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
