"""Weight files: weights of other programs, taken by rules, with a report."""
from __future__ import annotations

import json
import re

import keras
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from lingpipe.checkpoint import initialize
from lingpipe.checkpoint.weight_files import read_weights
from tests.support.plain_user import plain_user

KERNEL = np.arange(12, dtype=np.float32).reshape([3, 4])
BIAS = np.arange(4, dtype=np.float32)


def variables() -> dict[str, tf.Variable]:
    return {'weights/model/a/w': tf.Variable(tf.zeros([3, 4])),
            'weights/model/a/b': tf.Variable(tf.zeros([4])),
            'slots/model/a/w': tf.Variable(tf.zeros([3, 4]))}


def keras_model() -> keras.Model:
    model = keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(4, name='other')])
    model.layers[0].set_weights([KERNEL, BIAS])
    return model


def write(path: str) -> None:
    if path.endswith('.npz'):
        np.savez(path, **{'other/kernel': KERNEL, 'other/bias': BIAS})
    elif path.endswith('.safetensors'):
        safetensors.numpy.save_file({'other/kernel': KERNEL, 'other/bias': BIAS}, path)
    elif path.endswith('.keras'):
        keras_model().save(path)
    else:
        keras_model().save_weights(path)


def test_numbers_that_a_variable_cannot_hold_are_not_taken(tmp_path):
    """1.5 became 1, and a complex number its real part."""
    path = f'{tmp_path}/w.npz'
    np.savez(path, fraction=np.array([1.5]), complex=np.array([1 + 2j]), whole=np.array([2]),
             other=np.array([2]))
    here = {f'weights/{name}': tf.Variable(tf.zeros([1], dtype)) for name, dtype in {
        'fraction': 'int32', 'complex': 'float32', 'whole': 'float32', 'other': 'bool'}.items()}
    report = initialize(here, path, [('(.*)', r'\1')])
    assert report.taken == {'weights/whole': 'weights/whole'}
    assert report.not_taken == {
        'weights/fraction': 'its dtype is int32, and float64 there',
        'weights/complex': 'its dtype is float32, and complex128 there',
        'weights/other': 'its dtype is bool, and int64 there'}


@pytest.mark.filterwarnings('ignore:__array__ implementation')   # of Keras, with NumPy 2
@pytest.mark.parametrize(('name', 'kernel', 'bias'), [
    ('w.npz', 'kernel', 'bias'), ('w.safetensors', 'kernel', 'bias'),
    ('m.keras', 'kernel', 'bias'), ('m.weights.h5', '0', '1')])
def test_weights_are_taken_by_rules(name, kernel, bias, tmp_path):
    path, here = f'{tmp_path}/{name}', variables()
    write(path)
    report = initialize(here, path, [
        ('weights/model/a/w', f'weights/other/{kernel}'),
        ('weights/model/a/b', f'weights/other/{bias}')])
    np.testing.assert_array_equal(here['weights/model/a/w'], KERNEL)
    np.testing.assert_array_equal(here['weights/model/a/b'], BIAS)
    assert report.text().splitlines() == [
        f'2 of 3 variables are taken from {path}.',
        '  not taken  slots/model/a/w: no rule for it',
        f'  taken      weights/model/a/w from weights/other/{kernel}',
        f'  taken      weights/model/a/b from weights/other/{bias}']


def test_what_does_not_fit_is_reported(tmp_path):
    np.savez(f'{tmp_path}/w.npz', **{'model/a/w': KERNEL.T, 'model/a/b': BIAS})
    report = initialize(variables(), f'{tmp_path}/w.npz', [('weights/(.*)', r'weights/\1')])
    assert report.not_taken['weights/model/a/w'] == 'its shape is [3, 4], and [4, 3] there'


def test_the_description_beside_a_file_is_checked_before_anything_is_assigned(tmp_path):
    np.savez(f'{tmp_path}/w.npz', **{'model/a/b': BIAS})
    (tmp_path / 'w.json').write_text(json.dumps({'task': {'vocabulary': 'another'}}))
    here = variables()

    def refuse(metadata, keys):
        raise ValueError(f'{metadata["task"]["vocabulary"]}: {list(keys)}')

    with pytest.raises(ValueError, match=re.escape("another: ['weights/model/a/b']")):
        initialize(here, f'{tmp_path}/w.npz', [('weights/(.*)', r'weights/\1')], refuse)
    np.testing.assert_array_equal(here['weights/model/a/b'], 0 * BIAS)


def test_a_description_that_may_not_be_read_is_not_passed_over():
    with plain_user() as folder:
        np.savez(f'{folder}/w.npz', **{'model/a/b': BIAS})
        (folder / 'w.json').touch(0)
        with pytest.raises(OSError, match=f'^{folder}/w.json cannot be read: Permission denied; '):
            initialize(variables(), f'{folder}/w.npz', [('weights/(.*)', r'weights/\1')])


@pytest.mark.parametrize(('name', 'content', 'sentence'), [
    ('w.npz', None, 'w.npz cannot be read: No such file or directory; correct '
                    'initialize_from.directory.'),
    ('w.npz', b'half', 'w.npz cannot be read: '),
    ('m.keras', b'half', 'm.keras cannot be read: it is no .keras file; write it again'),
    ('m.weights.h5', b'half', 'm.weights.h5 cannot be read: '),
])
def test_files_that_cannot_be_read_are_refused(name, content, sentence, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises((ValueError, OSError), match=re.escape(sentence)):
        initialize(variables(), f'{tmp_path}/{name}', [('weights/(.*)', r'weights/\1')])


def test_the_keys_of_the_file_are_named_where_no_rule_fits_them(tmp_path):
    np.savez(f'{tmp_path}/w.npz', **{'conv.weight': BIAS})
    with pytest.raises(ValueError, match='nothing could be taken from .*, whose keys look like '
                                         'weights/conv.weight: correct the rules.'):
        initialize(variables(), f'{tmp_path}/w.npz', [('weights/(.*)', r'weights/\1')])


@keras.saving.register_keras_serializable('lingpipe')
class TwoOfOneName(keras.layers.Layer):
    def __init__(self, **config):
        super().__init__(**config)
        self.one = keras.layers.Dense(3, name='dense')
        self.other = keras.layers.Dense(3, name='dense')

    def build(self, shape):
        self.one.build(shape)
        self.other.build(shape)

    def call(self, inputs):
        return self.other(self.one(inputs))


def save(layers, path):
    """Saves a model of two kernels, of ones and of twos."""
    model = keras.Sequential([keras.layers.Input([3]), *layers])
    model.set_weights([np.full(weight.shape, 1. + (number > 1))
                       for number, weight in enumerate(model.weights)])
    (model.save if path.endswith('.keras') else model.save_weights)(path)


@pytest.mark.filterwarnings('ignore:__array__ implementation')   # of Keras, with NumPy 2
@pytest.mark.parametrize(('name', 'kernel'), [('m.keras', 'kernel'), ('m.weights.h5', '0')])
def test_layers_of_one_name_in_two_models_are_told_apart(name, kernel, tmp_path):
    """Both got the weights of the second one."""
    models = [keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(3, name='dense')],
                               name=model) for model in 'ab']
    save(models, f'{tmp_path}/{name}')
    weights = read_weights(f'{tmp_path}/{name}')
    assert len(weights) == 4
    assert np.all(weights[f'weights/a/dense/{kernel}'] == 1.)
    assert np.all(weights[f'weights/b/dense/{kernel}'] == 2.)


@pytest.mark.filterwarnings('ignore:__array__ implementation')   # of Keras, with NumPy 2
def test_layers_of_one_name_in_one_layer_are_told_apart_or_refused(tmp_path):
    save([TwoOfOneName(name='two')], f'{tmp_path}/m.weights.h5')
    weights = read_weights(f'{tmp_path}/m.weights.h5')
    assert len(weights) == 4
    assert np.all(weights['weights/two/one/0'] == 1.)
    assert np.all(weights['weights/two/other/0'] == 2.)
    save([TwoOfOneName(name='two')], f'{tmp_path}/m.keras')
    with pytest.raises(ValueError, match='several of its variables are called .*dense/kernel'):
        read_weights(f'{tmp_path}/m.keras')
