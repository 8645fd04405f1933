"""Bad ids: the sentence names the example, the position, the id and the layer."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.pipeline.execution.bad_ids import find_bad_id
from lingpipe.pipeline.planning.dataflow import Element, wire

CLASSES, VOCABULARY = 3, 5


def classifier() -> tuple[Element, ...]:
    """A loss alone, of four examples."""
    network = Sequential.Params(name='model', layers=(
        layers.CrossEntropyLoss.Params(name='loss'),)).instantiate('model')
    return wire(network, {'x': tf.TensorSpec([4, CLASSES]), 'weight': tf.TensorSpec([4]),
                          'labels': tf.TensorSpec([4], tf.int32)})


def labelled(labels, weight=(1., 1., 1., 1.)) -> dict[str, np.ndarray]:
    return {'x': np.zeros([4, CLASSES], np.float32), 'labels': np.array(labels, np.int32),
            'weight': np.array(weight, np.float32)}


def look_up(*first, reads: str = 'tokens', dtype: tf.DType = tf.int32) -> tuple[Element, ...]:
    """An embedding of two examples of three tokens, after other layers."""
    network = Sequential.Params(name='model', layers=(*first, layers.Embedding.Params(
        name='table', vocab_size=VOCABULARY, dim=2, reads={'ids': reads}))).instantiate('model')
    return wire(network, {'tokens': tf.TensorSpec([2, 3], dtype)})


def test_a_mini_batch_whose_ids_are_all_in_range_has_no_bad_id():
    assert find_bad_id(classifier(), labelled([0, 1, 2, 0])) is None


@pytest.mark.parametrize('label', [3, -1])
def test_a_label_that_is_no_class_is_named_with_its_example_and_its_layer(label):
    bad = find_bad_id(classifier(), labelled([0, 1, label, 7]))
    assert bad.example == 2
    assert bad.sentence() == (
        f'example 2 of the mini-batch has labels {label} but model/loss takes whole numbers from '
        '0 to 2; correct the data, or make the layer larger.')


def test_an_input_may_have_a_name_for_the_example():
    bad = find_bad_id(classifier(), labelled([9, 0, 0, 0]))
    assert bad.sentence('7.png').startswith('7.png has labels 9 but model/loss takes')


def test_an_example_of_weight_0_may_have_any_label():
    assert find_bad_id(classifier(), labelled([0, 9, 0, 0], weight=(1., 0., 1., 1.))) is None


def test_a_token_outside_the_table_is_named_with_its_position():
    bad = find_bad_id(look_up(), {'tokens': np.array([[0, 1, 4], [2, 3, 5]])})
    assert bad.sentence() == (
        'example 1 of the mini-batch has tokens 5, position 2, but model/table takes whole numbers '
        'from 0 to 4; correct the data, or make the layer larger.')


@pytest.mark.parametrize('token', [1.5, np.nan])
def test_ids_that_are_floats_must_be_whole_numbers(token):
    tokens = np.array([[0., 1., 4.], [2., token, 3.]])
    bad = find_bad_id(look_up(dtype=tf.float32), {'tokens': tokens})
    assert (bad.example, f'has tokens {token}, position 1,' in bad.text) == (1, True)


def test_ids_that_a_layer_without_weights_computes_are_checked():
    elements = look_up(layers.Cast.Params(name='cast', dtype='int32', reads={'x': 'tokens'},
                                          writes='whole'), reads='whole', dtype=tf.float32)
    bad = find_bad_id(elements, {'tokens': np.array([[0., 1., 4.], [2., 3., 6.]], np.float32)})
    assert bad.sentence().startswith('example 1 of the mini-batch has whole 6, position 2, but')
