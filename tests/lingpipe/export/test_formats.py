"""Formats: what is written has the weights and the outputs of an evaluation."""
from __future__ import annotations

import json
import os
import pathlib
import re
import resource

import keras
import numpy as np
import onnxruntime
import pytest
import safetensors.numpy
import tensorflow as tf

from lingpipe import layers
from lingpipe.export import export
from lingpipe.export.served_network import signature
from lingpipe.keras_models import from_keras
from lingpipe.layers import Sequential
from lingpipe.layers.base import Layer
from lingpipe.learning import learning_rates
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.predictor import Predictor
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from tests.support.toy_layers import Add

B, D, V = 4, 3, 5
SPEC = {'image': tf.TensorSpec([B, D]), 'labels': tf.TensorSpec([B], tf.int32),
        'weight': tf.TensorSpec([B])}


class Static(Layer):
    """A layer that must know the number of examples."""

    def fprop(self, theta, ctx, x):
        num_examples = int(x.shape[0])
        return tf.reshape(x, [num_examples, D]) * 2


class Temperature(Layer):
    """Has a weight without dimensions."""

    def __init__(self, params, path=''):
        super().__init__(params, path)
        self.add_weight('t', [], 'ones')

    def fprop(self, theta, ctx, x):
        return x * theta.t


def program_of(*extra: Layer.Params) -> Program:
    """A trained network of two cells, whose averages are not its weights."""
    network = Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='stem', input_dim=D, units=D, reads={'x': 'image'}), *extra,
        layers.BatchNorm.Params(name='norm', dim=D),
        layers.Dense.Params(name='head', input_dim=D, units=V, writes='logits'),
        layers.CrossEntropyLoss.Params(name='loss', reads={'x': 'logits'}))).instantiate('model')
    learner = Learner.Params(learning_rate=learning_rates.Constant.Params(rate=0.1), ema_decay=0.5)
    program = Program(network, SPEC, PipelineParams(num_cells=2, num_micro_batches=2),
                      learner.instantiate())
    for step in range(3):
        program.train_step({'image': images(B), 'labels': np.arange(B, dtype=np.int32),
                            'weight': np.ones(B, np.float32)}, step)
    return program


def images(num_examples: int) -> np.ndarray:
    random = np.random.default_rng(0)
    return random.standard_normal([num_examples, D]).astype(np.float32)


@pytest.fixture(scope='module')
def program() -> Program:
    return program_of()


@pytest.fixture(scope='module')
def predictor(program: Program) -> Predictor:
    return program.predictor(SPEC)


@pytest.mark.parametrize('extra', [(), (Static.Params(name='static'),)], ids=['any', 'static'])
def test_a_saved_model_takes_any_number_of_examples_and_gives_the_bits_of_the_prediction(
        extra, tmp_path):
    program = program_of(*extra)
    path = export(program, program.predictor(SPEC), f'{tmp_path}/model', 'saved_model')
    signatures = tf.saved_model.load(path).signatures
    assert ('at_once' in signatures) == (not extra)
    for num_examples in (1, 7):
        predicted = program.predict(images(num_examples))
        for name, serve in signatures.items():
            served = serve(image=images(num_examples))
            assert served.keys() == predicted.keys() == {'logits'}
            tolerance = 0 if name == 'serving_default' else 1e-5
            np.testing.assert_allclose(served['logits'], predicted['logits'], tolerance, tolerance)


def test_npz_has_the_averaged_weights_by_path_and_json_describes_them(program, predictor, tmp_path):
    path = export(program, predictor, f'{tmp_path}/weights', 'npz', {'step': 3})
    with np.load(path) as arrays:
        assert set(arrays) == set(program.weights)
        np.testing.assert_array_equal(
            arrays['model/head/w'], program.variables()['ema/model/head/w'])
        assert not np.array_equal(arrays['model/head/w'], program.weights['model/head/w'])
    text = json.loads(pathlib.Path(f'{tmp_path}/weights.json').read_text())
    assert text['step'] == 3
    assert text['inputs'] == {'image': {'shape': [None, D], 'dtype': 'float32'}}
    assert text['outputs'] == {'logits': {'shape': [None, V], 'dtype': 'float32'}}
    assert text['weights']['model/head/w'] == {
        'shape': [D, V], 'dtype': 'float32', 'is_trained': True}
    assert not text['weights']['model/norm/moving_mean']['is_trained']


def test_a_scalar_weight_stays_a_scalar(tmp_path):
    program = program_of(Temperature.Params(name='temperature'))
    path = export(program, program.predictor(SPEC), f'{tmp_path}/weights', 'npz')
    with np.load(path) as arrays:
        assert arrays['model/temperature/t'].shape == ()
        assert arrays['model/temperature/t'] == program.variables()['ema/model/temperature/t']


def test_values_that_would_have_one_name_are_refused():
    spec = tf.TensorSpec([D])
    assert list(signature({'a-b': spec, 'x': {'y': spec}})) == ['a_b', 'x_y']
    with pytest.raises(ValueError, match="the values 'a-b' and 'a_b' would both be a_b in the"):
        signature({'a-b': spec, 'a_b': spec})


def test_an_input_that_is_not_needed_takes_no_name_from_one_that_is(tmp_path):
    network = Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='head', input_dim=D, units=V, reads={'x': 'an-id'},
                            writes='logits'),
        layers.CrossEntropyLoss.Params(name='loss', reads={
            'x': 'logits', 'labels': 'an_id'}))).instantiate('model')
    specs = {'an-id': tf.TensorSpec([B, D]), 'an_id': tf.TensorSpec([B], tf.int32),
             'weight': tf.TensorSpec([B])}
    program = Program(network, specs, PipelineParams(num_cells=1, num_micro_batches=2),
                      Learner.Params(learning_rate=learning_rates.Constant.Params(rate=0.1)
                                     ).instantiate())
    path = export(program, program.predictor(specs), f'{tmp_path}/model', 'saved_model')
    served = tf.saved_model.load(path).signatures['serving_default'](an_id=images(B))
    np.testing.assert_array_equal(served['logits'], program.predict(images(B))['logits'])


@pytest.mark.filterwarnings('ignore:__array__ implementation')   # of Keras, with NumPy 2
def test_the_keras_model_that_came_in_gets_the_weights(tmp_path, caplog):
    model = keras.Sequential([keras.layers.Input([D], name='image'), keras.layers.Dense(V)])
    network = Sequential.Params(name='model', layers=(
        from_keras(model), layers.CrossEntropyLoss.Params(name='loss')))
    converted = network.layers[0]
    network.layers[1].reads = {'x': converted.outputs[0]}
    program = Program(network.instantiate('model'), {**SPEC, converted.inputs[0]: SPEC['image']},
                      PipelineParams(), Learner.Params(
                          learning_rate=learning_rates.Constant.Params(rate=0.1)).instantiate())
    predictor = program.predictor(program.batch_spec)
    loaded = keras.models.load_model(export(program, predictor, f'{tmp_path}/model', 'keras'))
    assert not [message for message in caplog.messages if 'that came in alone' in message]
    np.testing.assert_allclose(loaded(images(7)), next(iter(program.predict(images(7)).values())),
                               rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings('ignore:__array__ implementation')
def test_layers_beside_the_keras_model_that_are_left_out_are_said(tmp_path, caplog):
    """Nothing said that the file computes other outputs than the network."""
    model = keras.Sequential([keras.layers.Input([D], name='image'), keras.layers.Dense(D)])
    converted = from_keras(model).set(name='body')
    head = layers.Dense.Params(name='head', input_dim=D, units=V, reads={'x': converted.outputs[0]})
    network = Sequential.Params(name='model', layers=(
        converted, head, layers.CrossEntropyLoss.Params(name='loss')))
    program = Program(network.instantiate('model'), {**SPEC, converted.inputs[0]: SPEC['image']},
                      PipelineParams(), Learner.Params(
                          learning_rate=learning_rates.Constant.Params(rate=0.1)).instantiate())
    path = export(program, program.predictor(program.batch_spec), f'{tmp_path}/model', 'keras')
    assert keras.models.load_model(path).output_shape == (None, D)
    assert any(message.startswith(f'{path} has the Keras model that came in alone')
               and 'model/head;' in message for message in caplog.messages)


class OwnRate(keras.optimizers.schedules.LearningRateSchedule):
    """A user's own, which is not registered with Keras."""

    def __call__(self, step):
        return 0.1

    def get_config(self):
        return {}


@pytest.mark.filterwarnings('ignore:__array__ implementation', 'ignore:Skipping variable loading')
@pytest.mark.parametrize('optimizer', [
    keras.optimizers.Adam, lambda: keras.optimizers.Adam(OwnRate()),
    lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam())])
def test_the_optimizer_of_an_exported_keras_model_begins_anew(tmp_path, optimizer):
    """It had the moments and the step that it had had with other weights, against the document."""
    model = keras.Sequential([keras.layers.Input([D], name='image'), keras.layers.Dense(V)])
    model.compile(optimizer(), 'mse')
    model.fit(images(B), np.ones([B, V]), verbose=0)
    converted = from_keras(model)
    spec = {'image': SPEC['image'], 'labels': tf.TensorSpec([B, V])}
    program = Program(converted.instantiate('model'), spec, PipelineParams(), Learner.Params(
        learning_rate=learning_rates.Constant.Params(rate=0.1)).instantiate())
    path = export(program, program.predictor(spec), f'{tmp_path}/model', 'keras')
    loaded = keras.models.load_model(path, custom_objects={'OwnRate': OwnRate})
    assert [int(one.optimizer.iterations) for one in (model, loaded)] == [1, 0]
    moments = [variable for variable in loaded.optimizer.variables if 'momentum' in variable.path]
    assert not any(variable.numpy().any() for variable in moments)


def test_inputs_of_unequal_numbers_of_examples_are_refused(tmp_path):
    """The examples of the first input counted, and those of others were cut or repeated."""
    network = Sequential.Params(name='model', layers=(
        layers.Dense.Params(name='dense', input_dim=D, units=V, reads={'x': 'image'}),
        Add.Params(name='add', reads={'x': 'x', 'skip': 'other'}),
        layers.CrossEntropyLoss.Params(name='loss'))).instantiate('model')
    program = Program(network, {**SPEC, 'other': tf.TensorSpec([B, V])}, PipelineParams(),
                      Learner.Params(learning_rate=learning_rates.Constant.Params(rate=0.1))
                      .instantiate())
    path = export(program, program.predictor(program.batch_spec), f'{tmp_path}/m', 'saved_model')
    signatures = tf.saved_model.load(path).signatures
    for name in ('serving_default', 'at_once'):
        assert signatures[name](image=images(7), other=tf.zeros([7, V]))['x'].shape == [7, V]
        for num_others in (1, 6, 8):
            with pytest.raises(tf.errors.InvalidArgumentError, match='unequal numbers of examples'):
                signatures[name](image=images(7), other=tf.zeros([num_others, V]))


def test_other_networks_are_not_written_as_keras_models(program, predictor, tmp_path):
    with pytest.raises(ValueError, match='made of 0 Keras models, and the format keras writes'):
        export(program, predictor, f'{tmp_path}/model', 'keras')


def test_safetensors_has_the_same_weights(program, predictor, tmp_path):
    tensors = safetensors.numpy.load_file(
        export(program, predictor, f'{tmp_path}/w', 'safetensors'))
    for name, value in program.evaluated_weights().items():
        np.testing.assert_array_equal(tensors[name], value, err_msg=name)


def test_onnx_has_the_same_outputs(program, predictor, tmp_path):
    session = onnxruntime.InferenceSession(
        export(program, predictor, f'{tmp_path}/model', 'onnx'))
    logits, = session.run(['logits'], {'image': images(7)})
    np.testing.assert_allclose(logits, program.predict(images(7))['logits'], rtol=1e-5, atol=1e-5)


def test_an_earlier_export_is_replaced_and_nothing_else(program, predictor, tmp_path):
    path = f'{tmp_path}/model'
    export(program, predictor, path, 'saved_model')
    export(program, predictor, path, 'saved_model')
    assert os.listdir(tmp_path) == ['model']

    (tmp_path / 'photos').mkdir()
    (tmp_path / 'photos' / 'cat.png').write_text('a cat')
    with pytest.raises(OSError, match='it exists and is not an earlier export'):
        export(program, predictor, f'{tmp_path}/photos', 'saved_model')
    assert (tmp_path / 'photos' / 'cat.png').read_text() == 'a cat'


def test_the_description_beside_weights_replaces_that_of_an_export_alone(
        program, predictor, tmp_path):
    (tmp_path / 'mine.json').write_text('{"notes": "of a user"}')
    for format in ('npz', 'safetensors'):
        with pytest.raises(OSError, match=r'mine\.json would be replaced by the description of .*'
                                          rf'mine\.{format}, and is not that of an earlier exp'):
            export(program, predictor, f'{tmp_path}/mine', format)
    assert os.listdir(tmp_path) == ['mine.json']
    assert (tmp_path / 'mine.json').read_text() == '{"notes": "of a user"}'

    for _ in range(2):
        for format in ('npz', 'safetensors'):
            export(program, predictor, f'{tmp_path}/weights', format)
    assert sorted(os.listdir(tmp_path)) == [
        'mine.json', 'weights.json', 'weights.npz', 'weights.safetensors']


def test_a_path_that_ends_as_another_format_is_refused(program, predictor, tmp_path):
    with pytest.raises(ValueError, match='ends like a file of the format keras, but the format is '
                                         'saved_model; choose the format keras, or another path'):
        export(program, predictor, f'{tmp_path}/model.keras', 'saved_model')
    for path, format, remedy in [('model.h5', 'saved_model', "write .keras, with format='keras'"),
                                 ('model.h5', 'keras', "write .keras, with format='keras'"),
                                 ('my.weights.h5', 'npz', 'write the weights as .npz or .safetens'),
                                 ('model.tflite', 'saved_model', 'write a saved_model, of which')]:
        with pytest.raises(ValueError, match=f'{path} ends like a file that is not .*; {remedy}'):
            export(program, predictor, f'{tmp_path}/{path}', format)
    assert not os.listdir(tmp_path)


def test_an_export_that_fails_leaves_what_was_there(program, predictor, tmp_path, monkeypatch):
    path = export(program, predictor, f'{tmp_path}/weights.npz', 'npz')
    before = pathlib.Path(path).read_bytes()

    def full(file, **arrays):
        file.write(b'half')
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(np, 'savez', full)
    with pytest.raises(OSError, match='cannot be written: No space left on device; choose'):
        export(program, predictor, path, 'npz')
    assert pathlib.Path(path).read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ['weights.json', 'weights.npz']


@pytest.mark.parametrize('format', ['saved_model', 'npz', 'safetensors'])
def test_a_full_disk_is_the_same_sentence_for_all_formats(program, predictor, tmp_path, format):
    """For a saved_model it was a ResourceExhaustedError with a hint to --traceback."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))   # the longest file, in bytes
    try:
        with pytest.raises(OSError, match=rf'^{tmp_path}/out[.a-z]* cannot be written: File too '
                                          r'large; choose another path to export to\.$'):
            export(program, predictor, f'{tmp_path}/out', format)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(('path', 'format', 'sentence'), [
    ('model', 'h5', "format='h5' is unknown; use saved_model, "),
    ('', 'npz', 'the path to export to is empty; name a file or a directory.'),
    ('/proc/nowhere/w', 'npz', '/proc/nowhere/w.npz cannot be written: No such file or directory; '
                               'choose another path to export to.'),
    ('/proc/nowhere/a[1]', 'saved_model', 'and TensorFlow, which takes it for a pattern, loads no '
                                          'saved_model from there; choose another path.'),
    ('/proc', 'npz', '/proc cannot be written: it is a directory; choose another path'),
])
def test_exports_that_cannot_be_written_are_refused(program, predictor, path, format, sentence):
    with pytest.raises((ValueError, OSError), match=re.escape(sentence)):
        export(program, predictor, path, format)


def test_a_package_that_is_not_installed_is_named(program, predictor, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__('sys').modules, 'safetensors.numpy', None)
    with pytest.raises(ValueError, match='the format safetensors needs safetensors, which cannot '
                                         'be imported .*; run pip install safetensors'):
        export(program, predictor, f'{tmp_path}/w', 'safetensors')
