"""conversion: names, dicts, nested models and frozen ones are Keras', or refused."""
from __future__ import annotations

from collections import OrderedDict
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import lingpipe as lp
from lingpipe.layers.context import Context

DENSE = keras.layers.Dense


def outputs(model: Any, batch: dict[str, Any]) -> dict[str, np.ndarray]:
    network = lp.from_keras(model).instantiate('model')
    tensors = {name: tf.constant(value) for name, value in batch.items()}
    values = network.fprop(network.initial_theta(), Context(), **tensors)
    return {name: values[name].numpy() for name in network.params.outputs}


def rows(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=[8, 4]).astype(np.float32)


def compiled(inputs: Any, outputs_: Any, **values: Any) -> Any:
    model = keras.Model(inputs, outputs_)
    model.compile('sgd', **{'loss': 'mse', **values})
    return model


def test_hidden_layers_may_have_the_names_of_what_the_loss_and_the_network_read() -> None:
    x = keras.Input((4,))
    hidden = DENSE(4, name='x')(DENSE(4, name='weight')(DENSE(4, name='labels')(x)))
    model = compiled(x, DENSE(2, name='loss')(hidden))
    params = lp.from_keras(model)
    spec = {'x': tf.TensorSpec([8, 4]), 'labels': tf.TensorSpec([8, 2])}
    program = lp.Program(params.instantiate('model'), spec, lp.PipelineParams(num_cells=1),
                         lp.learner_from_keras(model).instantiate())
    batch = {'x': rows(0), 'labels': rows(1)[:, :2]}
    loss = float(program.train_step(batch, 0)['loss'])
    assert loss == pytest.approx(float(model.test_on_batch(batch['x'], batch['labels'])), rel=1e-5)


def test_inputs_and_outputs_that_a_loss_would_take_for_labels_or_weights_are_refused() -> None:
    x, weight = keras.Input((4,), name='x'), keras.Input((4,), name='weight')
    with pytest.raises(ValueError, match="has an output 'labels', which is what its loss reads"):
        lp.from_keras(compiled(x, DENSE(2, name='labels')(x)))
    with pytest.raises(ValueError, match="has an output 'labels_a', which is what its loss reads"):
        lp.from_keras(compiled(x, [DENSE(2, name='a')(x), DENSE(2, name='labels_a')(x)]))
    with pytest.raises(ValueError, match="has an input 'weight', which is what its loss reads"):
        lp.from_keras(compiled([x, weight], DENSE(2)(x + weight)))
    lp.from_keras(keras.Model(x, DENSE(2, name='labels')(x)))   # It has no loss.


def test_outputs_of_an_ordered_dict_are_those_of_its_keys() -> None:
    x = keras.Input((4,))
    model = keras.Model(x, OrderedDict([('b', DENSE(3)(x)), ('a', DENSE(3)(x))]))
    found, expected = outputs(model, {'x': rows(0)}), model.predict_on_batch(rows(0))
    for name in 'ab':
        np.testing.assert_allclose(found[name], expected[name], atol=1e-6)


def test_the_labels_of_one_output_may_have_another_name() -> None:
    """The image inputs give `label`, and there was no way to have a Keras model read it."""
    x = keras.Input((4,))
    one = keras.Model(x, keras.layers.Dense(2, name='out')(x))
    several = keras.Model(x, {name: keras.layers.Dense(2)(x) for name in 'uv'})
    for model in one, several:
        model.compile('sgd', 'mse')
    network = lp.from_keras(one, labels='label').instantiate('model')
    assert set(network.reads().values()) == {'x', 'label'}
    with pytest.raises(ValueError, match=r"labels='label' names the labels of one output, and the "
                                         r'Keras model has 2 \(u, v\), whose losses read '
                                         'labels_OUTPUT; leave labels out'):
        lp.from_keras(several, labels='label')


def test_dicts_of_more_than_tensors_are_refused() -> None:
    x = keras.Input((4,))
    with pytest.raises(ValueError, match='give a list, or a dict with one tensor for each name'):
        lp.from_keras(keras.Model(x, {'a': [DENSE(3)(x), DENSE(3)(x)], 'b': DENSE(3)(x)}))


@pytest.mark.filterwarnings('ignore:When providing `inputs` as a dict:UserWarning')
def test_inputs_of_a_dict_are_those_of_its_keys() -> None:
    p, q = keras.Input((4,), name='p'), keras.Input((4,), name='q')
    model = keras.Model({'q': p, 'p': q}, DENSE(3, name='y')(DENSE(4)(p) - 3 * q))
    batch = {'p': rows(0), 'q': rows(1)}
    np.testing.assert_allclose(outputs(model, batch)['y'], model.predict_on_batch(batch), atol=1e-5)

    u, v = keras.Input((4,), name='u'), keras.Input((4,), name='v')
    outer = keras.Model([u, v], DENSE(2, name='z')(model({'p': u, 'q': v})))
    expected = outer.predict_on_batch([batch['p'], batch['q']])
    found = outputs(outer, {'u': batch['p'], 'v': batch['q']})
    np.testing.assert_allclose(found['z'], expected, atol=1e-5)


def test_a_mask_that_a_nested_model_is_given_is_refused() -> None:
    ids = keras.Input((5,), name='ids', dtype='int32')
    x = keras.layers.Embedding(9, 4)(ids)
    inner_x = keras.Input((5, 4))
    inner = keras.Model(inner_x, keras.layers.LSTM(3)(inner_x))
    with pytest.warns(UserWarning, match='does not support masking'):
        model = keras.Model(ids, inner(x, mask=keras.ops.not_equal(ids, 0)))
    with pytest.raises(ValueError, match="the nested model '.*' is called with mask"):
        lp.from_keras(model)
    masked = keras.layers.Embedding(9, 4, mask_zero=True)(ids)   # Which gives inner its mask.
    with pytest.warns(UserWarning, match='does not support masking'):
        model = keras.Model(ids, inner(masked))
    with pytest.raises(ValueError, match='as Keras does by itself where its input has one'):
        lp.from_keras(model)


@keras.saving.register_keras_serializable('test_conversion')
class Twice(keras.Sequential):
    """A Sequential that does more than its layers."""

    def call(self, x: Any, training: Any = None, mask: Any = None) -> Any:
        return 2. * super().call(x, training=training)


def test_a_sequential_with_a_call_of_its_own_is_refused() -> None:
    with pytest.raises(ValueError, match=r'Twice .* has a call\(\) of its own'):
        lp.from_keras(Twice([keras.Input((4,)), DENSE(3)]))
    x = keras.Input((4,))
    with pytest.raises(ValueError, match="the layer 'twice' of the Keras model cannot be had"):
        lp.from_keras(keras.Model(x, DENSE(3)(Twice([keras.Input((4,)), DENSE(4)])(x))))


@pytest.mark.filterwarnings('ignore:__array__ implementation:DeprecationWarning')   # Of Keras.
def test_a_weight_that_another_operation_reads_is_refused() -> None:
    x, dense = keras.Input((4,)), DENSE(4)
    model = keras.Model(x, keras.ops.matmul(dense(x), dense.kernel))
    with pytest.raises(ValueError, match='dense.*/kernel of another layer, which would be a const'):
        lp.from_keras(model)
    dense.trainable = False   # Then it is a constant in Keras too.
    lp.from_keras(model)


def test_a_frozen_model_with_a_layer_that_is_not_frozen_is_refused() -> None:
    model = keras.Sequential([keras.Input((4,)), DENSE(3), DENSE(2)])
    model.trainable = False
    lp.from_keras(model)
    model.layers[-1].trainable = True
    with pytest.raises(ValueError, match='trainable=False, but its weight .* is not frozen'):
        lp.from_keras(model)


def test_metrics_of_an_output_without_a_loss_are_refused() -> None:
    x = keras.Input((4,))
    model = compiled(x, [DENSE(2, name='a')(x), DENSE(2, name='b')(x)], loss=['mse', None],
                     metrics=[['mse'], ['mae']])
    with pytest.raises(ValueError, match="metrics of the output 'b', which has no loss"):
        lp.from_keras(model)


def test_whole_labels_become_floats_for_a_loss_of_ones_own() -> None:
    @keras.saving.register_keras_serializable('test_conversion')
    def squares(labels: Any, x: Any) -> Any:
        return keras.ops.mean((labels - x) ** 2, -1)

    x = keras.Input((4,))
    model = compiled(x, DENSE(2)(x), loss=squares)
    network = lp.from_keras(model).instantiate('model')
    ctx = Context()
    labels = np.random.default_rng(0).integers(0, 3, [8, 2])
    network.fprop(network.initial_theta(), ctx, x=tf.constant(rows(0)), labels=tf.constant(labels))


def test_weights_go_back_under_the_name_of_the_network() -> None:
    model = keras.Sequential([keras.Input((4,)), DENSE(2)])
    params = lp.from_keras(model, name='encoder')
    weights = {'encoder/dense/kernel': np.ones([4, 2], np.float32),
               'encoder/dense/bias': np.ones([2], np.float32)}
    assert lp.to_keras(params, weights).get_weights()[0].tolist() == [[1., 1.]] * 4


def test_weights_of_a_network_within_another_are_asked_for_by_its_path() -> None:
    """The error asked for all weights of the network, which were given."""
    params = lp.from_keras(keras.Sequential([keras.Input((4,)), DENSE(2)]), name='encoder')
    weights = {'model/encoder/dense/kernel': np.ones([4, 2], np.float32),
               'model/encoder/dense/bias': np.ones([2], np.float32)}
    with pytest.raises(ValueError, match='there is no weight encoder/dense/kernel; '
                                         'model/encoder/dense/kernel is there: if the network is '
                                         "a part of another, give to_keras its path, as "
                                         "name='model/encoder'"):
        lp.to_keras(params, weights)
    model = lp.to_keras(params, weights, name='model/encoder')
    assert model.get_weights()[0].tolist() == [[1., 1.]] * 4
    with pytest.raises(ValueError, match='no weight encoder/dense/kernel; give all weights of the'):
        lp.to_keras(params, {})


def test_a_learner_of_an_optimizer_that_has_trained_says_that_it_begins_anew(
        caplog: pytest.LogCaptureFixture) -> None:
    x = keras.Input((4,))
    model = compiled(x, DENSE(2)(x))
    lp.learner_from_keras(model)
    assert not caplog.text
    model.train_on_batch(rows(0), rows(1)[:, :2])
    with caplog.at_level('WARNING', 'absl'):
        lp.learner_from_keras(model)
    assert 'has trained already (its step: 1); the learner begins anew' in caplog.text
