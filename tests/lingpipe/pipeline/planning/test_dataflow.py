"""Dataflow: which layer reads which writing of a name, who has gradients, and what is refused."""

import re

import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.layers import Sequential
from lingpipe.pipeline.planning.dataflow import BATCH, Value, owner, wire
from tests.support.planned_chains import MICRO_BATCH_SPEC, Tied, dense, elements_with_skip, made
from tests.support.toy_layers import Add


def names(values):
    return {name: str(value) for name, value in values.items()}


def test_a_layer_reads_the_newest_value_of_a_name():
    assert [names(element.reads) for element in elements_with_skip()] == [
        {'x': 'image@-1'},
        {'x': 'skip@0'},
        {'x': 'x@1', 'skip': 'skip@0'},
        {'x': 'x@2', 'labels': 'labels@-1', 'weight': 'weight@-1'},
    ]


def test_every_writing_of_a_name_is_a_value_of_its_own():
    assert [names(element.writes) for element in elements_with_skip()] == [
        {'skip': 'skip@0'}, {'x': 'x@1'}, {'x': 'x@2'}, {}]


def test_a_value_is_the_same_object_where_it_is_written_and_where_it_is_read():
    first, second, third, _ = elements_with_skip()
    assert first.writes['skip'] is second.reads['x'] is third.reads['skip']


def test_a_value_knows_its_readers_in_order():
    first, second, third, _ = elements_with_skip()
    values = (first.reads['x'], first.writes['skip'], second.writes['x'], third.writes['x'])
    assert [value.readers for value in values] == [(0,), (1, 2), (2,), (3,)]


def test_a_value_that_nobody_reads_has_no_readers():
    network = made(dense('in', 8, 8, reads={'x': 'image'}),
                   dense('side', 8, 8, writes='nobody'))
    assert wire(network, MICRO_BATCH_SPEC)[1].writes['nobody'].readers == ()


def test_a_layer_that_reads_a_value_twice_is_one_reader():
    network = made(dense('in', 8, 8, reads={'x': 'image'}),
                   Add.Params(name='double', reads={'skip': 'x'}))
    assert wire(network, MICRO_BATCH_SPEC)[0].writes['x'].readers == (1,)


def test_gradients_are_asked_for_from_the_first_weight_that_trains_on():
    elements = elements_with_skip('model/in/w')
    assert [element.has_backward for element in elements] == [False, True, True, True]
    assert [[weight.path for weight in element.trained] for element in elements] == [
        [], ['model/mid/w'], [], []]


def test_a_use_of_a_shared_weight_trains_if_its_owner_does():
    network = made(dense('in', 8, 8, reads={'x': 'image'}),
                   Tied.Params(name='tied', dim=8, share={'w': 'model/in/w'}))
    frozen = wire(network, MICRO_BATCH_SPEC, lambda path: path == 'model/in/w')
    assert [len(element.trained) for element in wire(network, MICRO_BATCH_SPEC)] == [1, 1, 0]
    assert [len(element.trained) for element in frozen] == [0, 0, 0]


@pytest.mark.parametrize(('needs_gradient', 'expected'), [
    (True, [True, False, True]),
    (False, [False, False, False]),
])
def test_floating_leaves_behind_a_weight_carry_gradients(needs_gradient, expected):
    spec = {'a': tf.TensorSpec([4]), 'b': tf.TensorSpec([4], tf.int32),
            'c': tf.TensorSpec([4], tf.complex64)}
    assert Value('v', 0, spec, needs_gradient).carries_gradient == expected


def test_bytes_of_a_value_are_those_of_its_leaves():
    value = Value('v', BATCH, {'a': tf.TensorSpec([4, 8]), 'b': tf.TensorSpec([4], tf.bfloat16)},
                  needs_gradient=False)
    assert (value.leaf_bytes, value.num_bytes) == ([128, 8], 136)


def test_layers_of_a_unit_have_one_number():
    unit = Sequential.Params(name='unit', is_unit=True,
                             layers=(dense('a', 8, 8), dense('b', 8, 8)))
    free = Sequential.Params(name='free', layers=(dense('a', 8, 8), dense('b', 8, 8)))
    network = made(dense('in', 8, 8, reads={'x': 'image'}), unit, free)
    assert [element.unit for element in wire(network, MICRO_BATCH_SPEC)] == [0, 1, 1, 2, 3, 4]


def test_the_owner_of_a_weight_is_the_one_it_shares_or_itself():
    network = made(dense('in', 8, 8, reads={'x': 'image'}),
                   Tied.Params(name='tied', dim=8, share={'w': 'model/in/w'}))
    by_path = {weight.path: weight for weight in network.weights()}
    assert owner(by_path['model/tied/w'], by_path) is by_path['model/in/w']
    assert owner(by_path['model/in/w'], by_path) is by_path['model/in/w']


@pytest.mark.parametrize(('layer', 'sentence'), [
    (Add.Params(name='one'),
     "model/one reads 'skip' (its argument 'skip'), which no layer before it writes and the "
     'mini-batch does not have; there are: image, labels, text, weight, x.'),
    (Tied.Params(name='one', dim=8, share={'kernel': 'model/in/w'}),
     "model/one: share names the weight 'kernel', but Tied has w; correct the name in "
     'Params.share.'),
    (Add.Params(name='one', reads={'skip': 'x'}, share={'w': 'model/in/w'}),
     "model/one: share names the weight 'w', but Add has none of its own;"),
    (Tied.Params(name='one', dim=8, share={'w': 'model/nothing/w'}),
     "model/one/w shares 'model/nothing/w', which is no weight of this network; there are "
     'model/in/w, model/one/w.'),
    (Tied.Params(name='one', dim=4, share={'w': 'model/in/w'}),
     'model/one/w of shape (4, 4) shares model/in/w of shape (8, 8); shared weights must have one '
     'shape: set transpose_w, or make the dimensions equal.'),
    (Tied.Params(name='one', dim=8, dtype='bfloat16', share={'w': 'model/in/w'}),
     'model/one/w of bfloat16 shares model/in/w of float32; shared weights must have one dtype.'),
    (Tied.Params(name='one', dim=8, share={'w': 'model/one/w'}),
     'model/one/w shares model/one/w, which itself shares model/one/w; share that one.'),
    (Sequential.Params(name='one', layers=(
        Sequential.Params(name='a', layers=(dense('b', 8, 8),)), dense('a/b', 8, 8))),
     "2 layers have the path 'model/one/a/b', but a path belongs to one"),
    (layers.Dense.Params(name='one', input_dim=16, units=8),
     "(while pricing model/one for x: ('float32', (4, 8)))"),
    (layers.Dense.Params(name='one', input_dim=16, units=8, reads={'x': 'labels'}),
     '(while pricing model/one for x = labels: ('),
    (dense('one', 8, 8, reads={'x': 'text'}),
     "model/one reads 'text' (its argument 'x'), which is of strings, but computes with numbers; "
     'make numbers of them in the input (load, decode or preprocess), or, if the layer can read '
     'strings, set takes_text = True in Dense.'),
])
def test_a_network_that_cannot_be_wired_is_refused_with_the_layer_named(layer, sentence):
    network = made(dense('in', 8, 8, reads={'x': 'image'}), layer)
    spec = {**MICRO_BATCH_SPEC, 'text': tf.TensorSpec([4], tf.string)}
    with pytest.raises(ValueError, match=re.escape(sentence)):
        wire(network, spec)
