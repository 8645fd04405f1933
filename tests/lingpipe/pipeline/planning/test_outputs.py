"""Outputs: what a network gives as its result, and which layers that needs."""

import re

import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.pipeline.planning.dataflow import wire
from lingpipe.pipeline.planning.outputs import inputs_of, layers_before, output_names, output_values

SPEC = {'image': tf.TensorSpec([2, 3]), 'label': tf.TensorSpec([2], tf.int32),
        'weight': tf.TensorSpec([2])}


def dense(name: str, reads: str, writes: str) -> layers.Dense.Params:
    return layers.Dense.Params(name=name, input_dim=3, units=3, reads={'x': reads}, writes=writes)


def loss(name: str, reads: str = 'x', **params) -> layers.CrossEntropyLoss.Params:
    return layers.CrossEntropyLoss.Params(
        name=name, reads={'x': reads, 'labels': 'label'}, **params)


NETWORK = Sequential.Params(layers=(
    dense('stem', 'image', 'x'), dense('side', 'x', 'side'), dense('head', 'x', 'x'),
    loss('loss'), loss('side_loss', 'side', is_auxiliary=True))).instantiate('model')
ELEMENTS = wire(NETWORK, SPEC)


def names_before(*outputs: str) -> list[str]:
    before = layers_before(ELEMENTS, list(output_values(ELEMENTS, outputs).values()))
    return [element.layer.path for element in before]


def test_the_outputs_are_what_the_last_layer_writes_that_is_no_loss():
    assert output_names(NETWORK, ELEMENTS) == ('x',)


def test_what_depends_on_no_weight_is_no_output():
    # The weights of pixels were the prediction of a U-Net that computes them beside its loss.
    counts = layers.Cast.Params(name='counts', reads={'x': 'weight'}, writes='counts',
                                dtype='float32')
    network = Sequential.Params(layers=(
        dense('head', 'image', 'logits'),
        layers.Activation.Params(name='softmax', activation='softmax', reads={'x': 'logits'}),
        counts, loss('loss'))).instantiate('model')
    assert output_names(network, wire(network, SPEC)) == ('x',)
    without_weights = Sequential.Params(layers=(counts, loss('loss', 'image')))
    network = without_weights.instantiate('model')
    assert output_names(network, wire(network, SPEC)) == ('counts',)


def test_outputs_can_be_named():
    assert output_names(NETWORK, ELEMENTS, ['side', 'x']) == ('side', 'x')


@pytest.mark.parametrize(('network', 'named', 'sentence'), [
    (NETWORK, ['logits'], "outputs names 'logits', which no layer writes; there are side, x: "
                          'correct task.outputs.'),
    (Sequential.Params(layers=(loss('loss', 'image'),)).instantiate('model'), [],
     'no layer of the network writes a value, so that it has no outputs; give a layer before the '
     'loss a name to write.'),
])
def test_outputs_that_do_not_exist_are_refused(network, named, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        output_names(network, wire(network, SPEC), named)


@pytest.mark.parametrize(('outputs', 'expected'), [
    (['x'], ['model/stem', 'model/head']),
    (['side'], ['model/stem', 'model/side']),
    (['x', 'side'], ['model/stem', 'model/side', 'model/head']),
])
def test_layers_that_the_outputs_do_not_need_are_left_out(outputs, expected):
    assert names_before(*outputs) == expected


def test_the_inputs_are_those_of_the_layers_that_are_left():
    assert inputs_of(ELEMENTS) == ('image', 'label', 'weight')
    assert inputs_of(wire(NETWORK, {'image': SPEC['image']}, only=names_before('x'))) == ('image',)
