"""from_keras: a Keras model and its network compute and learn the same, however it is cut."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import lingpipe as lp
from lingpipe.keras_models import KerasModel
from lingpipe.layers import nested
from lingpipe.layers.context import Context

RATE, STEPS = 0.1, 3
TOLERANCE = 2e-6

Batch = dict[str, np.ndarray]


def learned(params: KerasModel.Params, batches: Sequence[Batch], num_cells: int = 1,
            num_micro_batches: int = 1) -> dict[str, np.ndarray]:
    """The weights after a step for each mini-batch, by the mean squared error of one output."""
    with_loss = params.copy()
    with_loss.layers = (*params.layers, lp.layers.MeanSquaredErrorLoss.Params(
        name='loss', reads={'x': params.outputs[0]}))
    learner = lp.Learner.Params(learning_rate=lp.learning_rates.Constant.Params(rate=RATE))
    spec = nested.map_leaves(lambda v: tf.TensorSpec(v.shape, v.dtype), batches[0])
    pipeline = lp.PipelineParams(num_cells=num_cells, num_micro_batches=num_micro_batches)
    program = lp.Program(with_loss.instantiate('model'), spec, pipeline, learner.instantiate())
    for step, batch in enumerate(batches):
        program.train_step(batch, step)
    return {path: variable.numpy() for path, variable in program.weights.items()}


def learned_by_keras(model: Any, inputs: Sequence[str], batches: Sequence[Batch]) -> list[Any]:
    """What Keras makes of the weights; the model has those before again."""
    before = model.get_weights()
    model.compile(keras.optimizers.SGD(RATE), 'mse')
    for batch in batches:
        model.train_on_batch([batch[name] for name in inputs], batch['target'])
    after: list[Any] = model.get_weights()
    model.set_weights(before)
    return after


def outputs(params: KerasModel.Params, batch: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The network's outputs in an evaluation."""
    network = params.instantiate('model')
    values = network.fprop(network.initial_theta(), Context(),
                           **{name: tf.constant(batch[name]) for name in params.inputs})
    return {name: values[name].numpy() for name in params.outputs}


def branches() -> Any:
    """Two inputs, a layer and a model that are used twice, operations, BatchNorm, a penalty."""
    first, second = keras.Input((6,), name='first'), keras.Input((6,), name='second')
    shared = keras.layers.Dense(5, activation='tanh', kernel_regularizer='l2')
    a, b = shared(first), shared(second)
    x = keras.layers.Concatenate()([keras.layers.Add()([a, b]), a * b])
    x = keras.layers.BatchNormalization()(x)[:, 1:]
    block = keras.Sequential([keras.Input((9,)), keras.layers.Dense(9, activation='relu')],
                             name='block')
    return keras.Model([first, second], keras.layers.Dense(3, name='out')(block(x) + block(2. * x)))


def rows(num_batches: int = STEPS) -> list[Batch]:
    rng = np.random.default_rng(0)
    shapes = {'first': 6, 'second': 6, 'target': 3}
    return [{name: rng.normal(size=[8, n]).astype(np.float32) for name, n in shapes.items()}
            for _ in range(num_batches)]


def test_a_model_with_branches_learns_what_keras_learns_however_it_is_cut() -> None:
    model, batches = branches(), rows()
    params = lp.from_keras(model)
    expected = model.predict_on_batch([batches[0]['first'], batches[0]['second']])
    np.testing.assert_allclose(outputs(params, batches[0])['out'], expected, atol=TOLERANCE)

    wanted = learned_by_keras(model, params.inputs, batches)
    whole = learned(params, batches)
    lp.to_keras(params, whole)
    for found, value in zip(model.get_weights(), wanted, strict=True):
        np.testing.assert_allclose(found, value, atol=TOLERANCE)

    split = learned(params, batches, 1, 4)
    cut = learned(params, batches, 4, 4)
    for path, value in split.items():
        np.testing.assert_array_equal(cut[path], value)


def test_the_text_is_whole_and_the_same_for_the_same_model_made_again() -> None:
    params = lp.from_keras(branches())
    assert lp.from_keras(branches()) == params
    assert KerasModel.Params.from_text(params.to_text()) == params
    assert params.inputs == ('first', 'second') and params.outputs == ('out',)


def test_weights_that_are_in_no_text_are_asked_for() -> None:
    params = KerasModel.Params.from_text(lp.from_keras(branches()).to_text())
    with pytest.raises(ValueError, match='model/dense: the weights begin with the values of a'):
        params.instantiate('model').initial_theta()
    with pytest.raises(ValueError, match='these Params have no Keras model: they were read from'):
        lp.to_keras(params, {})


def test_models_without_a_graph_are_refused() -> None:
    class Own(keras.Model):
        def call(self, x: Any) -> Any:
            return x

    for model, sentence in ((Own(), "the model Own 'own.*' has a call.. of its own"),
                            (keras.Sequential([keras.layers.Dense(2)]), 'has not been built'),
                            (3, '3.* is no model of Keras|int .* is no model of Keras')):
        with pytest.raises(ValueError, match=sentence):
            lp.from_keras(model)


def test_layers_that_cannot_be_had_are_refused_by_name() -> None:
    x = keras.Input((4,))
    model = keras.Model(x, keras.layers.Lambda(lambda y: y * 2, name='twice')(x))
    with pytest.raises(ValueError, match="the layer 'twice' of the Keras model cannot be had: "
                                         "Lambda 'twice' holds a Python function without a name"):
        lp.from_keras(model)
    model = keras.Model(x, keras.ops.mean(x, axis=0))
    with pytest.raises(ValueError, match="the layer 'mean' .* whose first dimension is not that"):
        lp.from_keras(model)
