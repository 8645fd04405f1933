"""Served network: what is served is what a prediction computes, or refused as it is there."""
from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import lingpipe as lp
from lingpipe.export import export
from tests.support.learners import learner

B, D, V = 4, 3, 5


def rows(num_examples: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=[num_examples, D]).astype(np.float32)


def program_of(shape: list[int], layer: Callable[[Any], Any]) -> lp.Program:
    inputs = keras.Input(shape, name='image')
    model = keras.Model(inputs, keras.layers.Dense(V, name='scores')(layer(inputs)))
    model.compile('sgd', 'mse')
    spec = {'image': tf.TensorSpec([B, *shape]), 'labels': tf.TensorSpec([B, *shape[:-1], V])}
    return lp.Program(lp.from_keras(model).instantiate('model'), spec, lp.PipelineParams(),
                      lp.learner_from_keras(model).instantiate())


def test_no_copies_are_served_to_examples_that_see_each_other(tmp_path: pathlib.Path) -> None:
    """run.predict refused them, and a saved_model and ONNX answered with other numbers."""
    program = program_of([D], lambda x: keras.ops.flip(x, axis=0))
    predictor = program.predictor(program.batch_spec)
    signatures = tf.saved_model.load(
        export(program, predictor, f'{tmp_path}/model', 'saved_model')).signatures
    assert list(signatures) == ['serving_default']
    serve = signatures['serving_default']
    np.testing.assert_array_equal(serve(image=rows(2 * B))['scores'],
                                  program.predict(rows(2 * B))['scores'])
    with pytest.raises(tf.errors.InvalidArgumentError, match='so no copies can fill up the last 4'):
        serve(image=rows(B + 1))
    with pytest.raises(ValueError, match='model/flip for an example depends on the others, .*; use '
                                         'the signature serving_default of a saved_model'):
        export(program, predictor, f'{tmp_path}/other', 'onnx')


def program_with(layer: lp.Layer.Params, num_micro_batches: int) -> lp.Program:
    """A classifier of rows, whose scores go through the layer."""
    dense = lp.layers.Dense.Params(name='scores', input_dim=D, units=V, reads={'x': 'image'})
    network = lp.Sequential.Params(name='model', layers=(
        dense, layer, lp.layers.CrossEntropyLoss.Params(name='loss')))
    spec = {'image': tf.TensorSpec([B, D]), 'labels': tf.TensorSpec([B], tf.int32),
            'weight': tf.TensorSpec([B])}
    return lp.Program(network.instantiate('model'), spec,
                      lp.PipelineParams(num_micro_batches=num_micro_batches), learner())


class Centred(lp.Layer):
    """Subtracts the mean of the mini-batch."""
    needs_whole_batch = True

    def fprop(self, theta: Any, ctx: Any, x: tf.Tensor) -> tf.Tensor:
        return x - tf.reduce_mean(x, 0)


def test_the_refusal_names_what_a_layer_may_say(tmp_path: pathlib.Path) -> None:
    """It did not, and the one who had written such a layer for training had no way on."""
    program = program_with(Centred.Params(name='centred'), num_micro_batches=1)
    predictor = program.predictor(program.batch_spec)
    remedy = 'if it does so in training alone, set mixes_in_training_only = True in its class'
    with pytest.raises(ValueError, match=f'; {remedy}, or else use the signature serving_default'):
        export(program, predictor, f'{tmp_path}/other', 'onnx')
    serve = tf.saved_model.load(export(
        program, predictor, f'{tmp_path}/model', 'saved_model')).signatures['serving_default']
    with pytest.raises(tf.errors.InvalidArgumentError, match=remedy):
        serve(image=rows(B + 1))


def test_what_mixes_examples_in_training_alone_is_served_to_any_number(
        tmp_path: pathlib.Path) -> None:
    """run.predict refused such numbers of examples."""
    program = program_of([4, 4, D], keras.layers.MixUp())
    given = np.random.default_rng(0).uniform(size=[B + 1, 4, 4, D]).astype(np.float32)
    path = export(program, program.predictor(program.batch_spec), f'{tmp_path}/m', 'saved_model')
    served = tf.saved_model.load(path).signatures['serving_default'](image=given)
    np.testing.assert_array_equal(served['scores'], program.predict(given)['scores'])


class Noise(lp.Layer):
    """Adds noise, in training or not, as a diffusion model or a sampled latent does."""

    def fprop(self, theta: Any, ctx: Any, x: tf.Tensor) -> tf.Tensor:
        return x + tf.random.stateless_normal(tf.shape(x), ctx.seed(self.path))


def test_random_numbers_of_a_layer_are_those_of_a_prediction(tmp_path: pathlib.Path) -> None:
    """All micro-batches were served with the numbers of the first."""
    program = program_with(Noise.Params(name='noise'), num_micro_batches=2)
    predictor = program.predictor(program.batch_spec, outputs=['x'])
    serve = tf.saved_model.load(export(
        program, predictor, f'{tmp_path}/model', 'saved_model')).signatures['serving_default']
    images = rows(2 * B + 3)
    np.testing.assert_array_equal(serve(image=images)['x'], predictor.predict(images)['x'])
