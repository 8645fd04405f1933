"""ONNX model: what tf2onnx and ONNX lack, and what is refused."""
from __future__ import annotations

import os

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.export import export
from lingpipe.keras_models import from_keras
from lingpipe.layers import Sequential
from lingpipe.learning import learning_rates
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams

B, D, V = 4, 3, 5
SPEC = {'image': tf.TensorSpec([B, D]), 'labels': tf.TensorSpec([B], tf.int32),
        'weight': tf.TensorSpec([B])}


def images(num_examples: int) -> np.ndarray:
    random = np.random.default_rng(0)
    return random.standard_normal([num_examples, D]).astype(np.float32)


def test_onnx_has_gelu_and_another_name_for_an_output_that_is_named_as_an_input(tmp_path):
    """TensorFlow makes gelu of Erfc, which ONNX lacks; such a file could not be loaded."""
    network = Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='dense', input_dim=D, units=V, activation='gelu'),
        layers.CrossEntropyLoss.Params(name='loss'))).instantiate('model')
    spec = {'x': SPEC['image'], 'labels': SPEC['labels'], 'weight': SPEC['weight']}
    program = Program(network, spec, PipelineParams(), Learner.Params(
        learning_rate=learning_rates.Constant.Params(rate=0.1)).instantiate())
    session = onnxruntime.InferenceSession(
        export(program, program.predictor(program.batch_spec), f'{tmp_path}/model', 'onnx'))
    logits, = session.run(['x_output'], {'x': images(7)})
    np.testing.assert_allclose(logits, program.predict(images(7))['x'], rtol=1e-5, atol=1e-5)


def test_onnx_has_masked_attention(tmp_path):
    """tf2onnx makes products of tf.where, which made NaN of -inf."""
    network = Sequential.Params(name='model', layers=(
        layers.MultiHeadAttention.Params(name='attention', input_dim=4, num_heads=2,
                                         reads={'mask': 'mask'}),
        layers.Dense.Params(name='dense', input_dim=4, units=V),
        layers.CrossEntropyLoss.Params(name='loss'))).instantiate('model')
    spec = {'x': tf.TensorSpec([B, D, 4]), 'mask': tf.TensorSpec([B, D], tf.bool),
            'labels': tf.TensorSpec([B, D], tf.int32), 'weight': SPEC['weight']}
    program = Program(network, spec, PipelineParams(), Learner.Params(
        learning_rate=learning_rates.Constant.Params(rate=0.1)).instantiate())
    session = onnxruntime.InferenceSession(
        export(program, program.predictor(program.batch_spec), f'{tmp_path}/model', 'onnx'))
    given = {'x': np.ones([2, D, 4], np.float32),
             'mask': np.array([[True, True, False], [False, False, False]])}
    name, = (output.name for output in session.get_outputs())
    np.testing.assert_allclose(session.run([name], given)[0], program.predict(given)['x'],
                               rtol=1e-5, atol=1e-5)


def test_onnx_of_bfloat16_is_refused(tmp_path):
    """A file was written, and onnxruntime could not load it."""
    inputs = keras.Input([D], name='image')
    model = keras.Model(inputs, keras.layers.Dense(V, dtype='mixed_bfloat16')(inputs))
    model.compile(loss='mse')
    network = from_keras(model).instantiate('model')
    spec = {**SPEC, 'labels': tf.TensorSpec([B, V])}
    program = Program(network, spec, PipelineParams(), Learner.Params(
        learning_rate=learning_rates.Constant.Params(rate=0.1)).instantiate())
    with pytest.raises(ValueError, match='the network computes in bfloat16, which ONNX lacks'):
        export(program, program.predictor(program.batch_spec), f'{tmp_path}/model', 'onnx')
    assert not os.listdir(tmp_path)
