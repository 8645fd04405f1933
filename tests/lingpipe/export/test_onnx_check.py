"""ONNX check: a model that computes something else than the network is not written."""
from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

import lingpipe as lp
from lingpipe.export import export

B, D, V = 4, 3, 5


def exported(layer: Callable[[Any], Any], folder: pathlib.Path, shape: tuple[int, ...] = (D,),
             dtype: str = 'float32') -> tuple[lp.Program, str]:
    """A network, and the path of its ONNX model."""
    inputs = keras.Input(shape, name='x', dtype=dtype)
    scores = keras.layers.Dense(V, name='scores')(keras.layers.Flatten()(layer(inputs)))
    model = keras.Model(inputs, scores)
    model.compile('sgd', 'mse')
    spec = {'x': tf.TensorSpec([B, *shape], dtype), 'labels': tf.TensorSpec([B, V])}
    program = lp.Program(lp.from_keras(model).instantiate('model'), spec, lp.PipelineParams(),
                         lp.learner_from_keras(model).instantiate())
    return program, export(program, program.predictor(spec), f'{folder}/model', 'onnx')


def divided(x: Any) -> Any:
    return keras.ops.cast(keras.ops.floor_divide(keras.ops.cast(9 * x, 'int32'), 3), 'float32')


def by_areas(x: Any) -> Any:
    return keras.layers.Resizing(5, 7, interpolation='area')(x)


@pytest.mark.parametrize(('layer', 'shape'), [(divided, (D,)), (by_areas, (8, 8, D))])
def test_a_model_that_gives_other_numbers_is_refused(
        layer: Callable[[Any], Any], shape: tuple[int, ...], tmp_path: pathlib.Path) -> None:
    """The file was written, and nobody was told."""
    with pytest.raises(ValueError, match='computes something else than the network: the output '
                                         'scores differs by up to .*; write a saved_model'):
        exported(layer, tmp_path, shape)
    assert not os.listdir(tmp_path)


def test_a_model_that_no_runtime_takes_is_refused(tmp_path: pathlib.Path) -> None:
    layer = keras.layers.Conv2DTranspose(4, 4, 3, output_padding=1)
    with pytest.raises(ValueError, match='onnxruntime cannot run the model that tf2onnx made of '
                                         'the network: .*; write a saved_model'):
        exported(layer, tmp_path, (8, 8, D))
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize('dtype', ['int32', 'uint8', 'bool'])
def test_ids_and_bools_are_compared_too(dtype: str, tmp_path: pathlib.Path) -> None:
    program, path = exported(keras.layers.Embedding(2, 4), tmp_path, dtype=dtype)
    ids = np.random.default_rng(0).integers(0, 2, [7, D]).astype(dtype)
    found, = onnxruntime.InferenceSession(path).run(['scores'], {'x': ids})
    np.testing.assert_allclose(found, program.predict(ids)['scores'], rtol=1e-5, atol=1e-5)


def test_without_a_runtime_nothing_is_compared(tmp_path: pathlib.Path,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'onnxruntime', None)
    assert os.path.exists(exported(divided, tmp_path)[1])
